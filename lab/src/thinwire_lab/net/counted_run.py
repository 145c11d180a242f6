"""A counted run: how a command ended on every host, and what each host sent and received."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thinwire_lab.net.counters import Counters
from thinwire_lab.net.netlab import Netlab, Stream
from thinwire_lab.process.ending import ProcessFailed


@dataclass(frozen=True)
class HostResult:
    """One host's result."""

    host: int
    address: str
    returncode: int
    counters: Counters

    def to_dict(self) -> dict[str, Any]:
        """The result as one flat JSON row."""
        return {
            "host": self.host,
            "address": self.address,
            "returncode": self.returncode,
            **asdict(self.counters),
            "tx_payload_bytes": self.counters.tx_payload_bytes,
            "rx_payload_bytes": self.counters.rx_payload_bytes,
        }


@dataclass(frozen=True)
class CountedRun:
    """The results of all hosts, how long the run took, and what went wrong, if anything."""

    hosts: list[HostResult]
    seconds: float
    failure: ProcessFailed | None


def run_counted(
    lab: Netlab, argv: Sequence[str], timeout: float | None = None, stream: Stream | None = None
) -> CountedRun:
    """Run a command on every host of a lab, counting; a host that fails is told in the result, not raised."""
    ranks = range(len(lab.addresses))
    before = [lab.counters(rank) for rank in ranks]
    start = time.monotonic()
    failure: ProcessFailed | None = None
    try:
        ended = lab.run(argv, timeout=timeout, stream=stream)
    except ProcessFailed as failed:
        ended, failure = list(failed.endings), failed
    seconds = time.monotonic() - start
    hosts = [
        HostResult(rank, lab.addresses[rank], ended[rank].returncode, lab.counters(rank) - before[rank])
        for rank in ranks
    ]
    return CountedRun(hosts, seconds, failure)
