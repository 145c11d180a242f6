"""The shape of a link: its rate, and the token bucket (tc tbf) that enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.errors import LabError
from thinwire.lab.netlab.iproute import run_tool
from thinwire.rate import parse_rate

MIN_RATE_BITS = 10_000.0  # slower, one full packet would take more than a second
# A bucket of 0.6 ms: at 1 gbit it holds one 64 kB segment of the TCP stack, which then need not be cut up.
BUCKET_S, MIN_BUCKET_BYTES = 0.6e-3, 16_384
# A queue that an all-to-all does not overflow: senders of one rate fill it only when their aims coincide.
QUEUE_S, MIN_QUEUE_BYTES = 20e-3, 1_000_000


@dataclass(frozen=True)
class Shape:
    """One direction of a link: `rate_bits` per second leave a bucket that may send `bucket_bytes` at once."""

    rate_bits: float

    @classmethod
    def parse(cls, rate: str) -> Shape:
        """The shape of a link of this rate, "1gbit" for example."""
        bits = parse_rate(rate)
        if bits < MIN_RATE_BITS:
            raise LabError(f'rate "{rate}" is too slow for netlab: at least {MIN_RATE_BITS / 1e3:.0f}kbit')
        return cls(bits)

    @property
    def bucket_bytes(self) -> int:
        return max(MIN_BUCKET_BYTES, int(self.rate_bits / 8 * BUCKET_S))

    @property
    def queue_bytes(self) -> int:
        return max(MIN_QUEUE_BYTES, int(self.rate_bits / 8 * QUEUE_S))

    def apply(self, namespace: str, interface: str) -> None:
        """Shape what leaves `interface`; a shape it already has is changed in place."""
        run_tool(
            "tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf",
            "rate", f"{self.rate_bits:.0f}bit",
            "burst", str(self.bucket_bytes), "limit", str(self.queue_bytes),
        )  # fmt: skip
