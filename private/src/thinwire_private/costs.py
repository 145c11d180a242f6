"""Costs: bytes, flights and seconds, predicted and measured, per layer, operator and phase."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from thinwire.texts import parse_rate
from thinwire_private.compiler import compile_graph, prepare_graph
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.variant import Variant

PHASES = ("setup", "offline", "online")
Row = dict[str, Any]


@dataclass(frozen=True)
class CostEntry:
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

    def __add__(self, other: CostEntry) -> CostEntry:
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


def added(entries: Iterable[CostEntry]) -> list[CostEntry]:
    """Entries of equal layer, operator and phase as one, in order of first sight."""
    found: dict[tuple[str, str, str], CostEntry] = {}
    for entry in entries:
        found[entry.key] = found[entry.key] + entry if entry.key in found else entry
    return list(found.values())


def total(entries: Sequence[CostEntry], phase: str | None = None) -> CostEntry:
    """All entries, or those of one phase, as one."""
    sum_ = CostEntry("total", "all", phase or "all")
    for entry in entries:
        if phase in (None, entry.phase):
            sum_ = sum_ + entry
    return sum_


def by_layer(entries: Sequence[CostEntry]) -> list[CostEntry]:
    """One entry per layer and phase."""
    return added(replace(entry, operator="all") for entry in entries)


def by_operator(entries: Sequence[CostEntry]) -> list[CostEntry]:
    """One entry per operator and phase."""
    return added(replace(entry, layer="all") for entry in entries)


def predicted(graph: Graph, variant: Variant, batch: int = 1) -> list[CostEntry]:
    """The costs of a first query before it runs, as the client will see it."""
    rows = compile_graph(graph, variant, batch).costs()
    return [
        CostEntry(
            row.layer or "session",
            row.operator,
            row.phase,
            predicted_uploaded=row.traffic.from_client_bytes,
            predicted_downloaded=row.traffic.from_server_bytes,
            flights=row.traffic.flights,
            hops=row.hops or 0,
        )
        for row in rows
    ]


def cost_rows(
    graph: Graph, variant: Variant, batch: int, rate: str, round_trip_s: float, operators: bool = False
) -> list[Row]:
    """One row per layer (or operator) and phase, then one per phase, then one for all of it."""
    if variant.tight_acc and not graph.has_weights:
        raise ModelError(f"accumulators of {variant.name} come from the weights: give a .twq file")
    entries = predicted(prepare_graph(graph, variant), variant, batch)
    bytes_per_s = parse_rate(rate) / 8

    def row(entry: CostEntry) -> Row:
        return {
            "layer": entry.layer,
            "operator": entry.operator,
            "phase": entry.phase,
            "bytes": entry.predicted_bytes,
            "upload_bytes": entry.predicted_uploaded,
            "download_bytes": entry.predicted_downloaded,
            "flights": entry.flights,
            "hops": entry.hops,
            "seconds": link_seconds(entry, bytes_per_s, round_trip_s),
        }

    shown = added(entries) if operators else by_layer(entries)
    ends = [total(entries, phase) for phase in (*PHASES, None)]
    return [row(entry) for entry in (*shown, *ends)]


def link_seconds(entry: CostEntry, bytes_per_s: float, round_trip_s: float) -> float:
    """What a link takes when nothing overlaps: bytes / rate + hops * round trip / 2; no computation.

    Hops are flights, but two messages that cross each other on the way count once.
    """
    return entry.predicted_bytes / bytes_per_s + entry.hops * round_trip_s / 2
