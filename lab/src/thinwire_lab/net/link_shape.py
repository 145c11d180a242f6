"""The shape of a link: its rate, and the token bucket (tc tbf) that enforces it."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.errors import LabError
from thinwire.texts.rate import parse_rate
from thinwire_lab.net.iproute import run_tool

MIN_RATE_BITS = 1e4  # slower, one full packet would take more than a second
MAX_RATE_BITS = 1e11  # beyond any machine's memory; from about 10 gbit on the processor is the limit
# The bucket: what may leave at once. TCP hands over segments of up to 64 kB; one that the bucket cannot hold
# is cut into packets in software (a bucket of 32 kB at 1 gbit: four times the processor time, and 10 to 25 %
# of the rate lost). So it holds a segment, but at slow rates no more than 2.5 ms of sending, and at fast ones
# what leaves while the kernel's timer sleeps.
SEGMENT_BYTES, MAX_BURST_S, TIMER_S, MIN_BUCKET_BYTES = 70_000, 2.5e-3, 0.6e-3, 4_096
# A queue that an all-to-all does not overflow: senders of one rate fill it only when their aims coincide.
QUEUE_S, MIN_QUEUE_BYTES = 20e-3, 1_000_000


@dataclass(frozen=True)
class LinkShape:
    """One direction of a link: `rate_bits` per second leave a bucket that may send `bucket_bytes` at once."""

    rate_bits: float

    @classmethod
    def parse(cls, rate: str) -> LinkShape:
        """The shape of a link of this rate, "1gbit" for example."""
        bits = parse_rate(rate)
        if not MIN_RATE_BITS <= bits <= MAX_RATE_BITS:
            raise LabError(f'rate "{rate}" cannot be shaped by netlab: choose 10kbit to 100gbit')
        return cls(bits)

    @property
    def bucket_bytes(self) -> int:
        per_second = self.rate_bits / 8
        return int(max(MIN_BUCKET_BYTES, min(SEGMENT_BYTES, MAX_BURST_S * per_second), TIMER_S * per_second))

    @property
    def queue_bytes(self) -> int:
        return max(MIN_QUEUE_BYTES, int(self.rate_bits / 8 * QUEUE_S))

    def apply(self, namespace: str, interface: str) -> None:
        """LinkShape what leaves `interface`; a shape it already has is changed in place."""
        run_tool(
            "tc", "-n", namespace, "qdisc", "replace", "dev", interface, "root", "tbf",
            "rate", f"{self.rate_bits:.0f}bit",
            "burst", str(self.bucket_bytes), "limit", str(self.queue_bytes),
        )  # fmt: skip
