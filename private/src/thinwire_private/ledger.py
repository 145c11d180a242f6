"""The ledger: what was predicted and what was measured, per layer, operator and phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

PHASES = ("setup", "offline", "online")


@dataclass(frozen=True)
class Entry:
    """One operator of one layer in one phase, as the client sees it; seconds include waiting for the server.

    `uploaded` is what the client sends. Bytes have their frames' headers in them.
    """

    layer: str
    operator: str
    phase: str
    predicted_uploaded: int = 0
    predicted_downloaded: int = 0
    measured_uploaded: int = 0
    measured_downloaded: int = 0
    flights: int = 0
    seconds: float = 0.0
    hops: int = 0  # predicted flights, but messages that cross count once

    @property
    def predicted_bytes(self) -> int:
        """Both directions."""
        return self.predicted_uploaded + self.predicted_downloaded

    @property
    def measured_bytes(self) -> int:
        """Both directions."""
        return self.measured_uploaded + self.measured_downloaded

    @property
    def key(self) -> tuple[str, str, str]:
        """What entries are added up by."""
        return self.layer, self.operator, self.phase

    def __add__(self, other: Entry) -> Entry:
        return replace(
            self,
            predicted_uploaded=self.predicted_uploaded + other.predicted_uploaded,
            predicted_downloaded=self.predicted_downloaded + other.predicted_downloaded,
            measured_uploaded=self.measured_uploaded + other.measured_uploaded,
            measured_downloaded=self.measured_downloaded + other.measured_downloaded,
            flights=self.flights + other.flights,
            seconds=self.seconds + other.seconds,
            hops=self.hops + other.hops,
        )

    def row(self) -> dict[str, Any]:
        """As a JSON row."""
        return {
            **asdict(self),
            "predicted_bytes": self.predicted_bytes,
            "measured_bytes": self.measured_bytes,
        }


def added(entries: Iterable[Entry]) -> list[Entry]:
    """Entries of equal layer, operator and phase as one, in order of first sight."""
    found: dict[tuple[str, str, str], Entry] = {}
    for entry in entries:
        found[entry.key] = found[entry.key] + entry if entry.key in found else entry
    return list(found.values())


def total(entries: Sequence[Entry], phase: str | None = None) -> Entry:
    """All entries, or those of one phase, as one."""
    sum_ = Entry("total", "all", phase or "all")
    for entry in entries:
        if phase in (None, entry.phase):
            sum_ = sum_ + entry
    return sum_


def by_layer(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per layer and phase."""
    return added(replace(entry, operator="all") for entry in entries)


def by_operator(entries: Sequence[Entry]) -> list[Entry]:
    """One entry per operator and phase."""
    return added(replace(entry, layer="all") for entry in entries)
