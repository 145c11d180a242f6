"""The ledger of a run: how the command ended on every host, and what each host sent and received."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from thinwire.lab.netlab.cluster import Netlab
from thinwire.lab.netlab.counters import Counters
from thinwire.lab.netlab.session import HostFailed, Stream


@dataclass(frozen=True)
class Entry:
    """One host's line."""

    host: int
    address: str
    returncode: int
    counters: Counters

    def to_dict(self) -> dict[str, Any]:
        """The entry as one flat JSON row."""
        return {
            "host": self.host,
            "address": self.address,
            "returncode": self.returncode,
            **asdict(self.counters),
            "tx_payload_bytes": self.counters.tx_payload_bytes,
            "rx_payload_bytes": self.counters.rx_payload_bytes,
        }


@dataclass(frozen=True)
class Ledger:
    """All hosts' entries, how long the run took, and what went wrong, if anything."""

    entries: list[Entry]
    seconds: float
    failure: HostFailed | None


def run_counted(
    lab: Netlab, argv: Sequence[str], timeout: float | None = None, stream: Stream | None = None
) -> Ledger:
    """Run a command on every host of a lab, counting; a host that fails is told in the ledger, not raised."""
    ranks = range(len(lab.addresses))
    before = [lab.counters(rank) for rank in ranks]
    start, failure = time.monotonic(), None
    try:
        ended = lab.run(argv, timeout=timeout, stream=stream)
    except HostFailed as failed:
        ended, failure = failed.hosts, failed
    seconds = time.monotonic() - start
    entries = [
        Entry(rank, lab.addresses[rank], ended[rank].returncode, lab.counters(rank) - before[rank])
        for rank in ranks
    ]
    return Ledger(entries, seconds, failure)
