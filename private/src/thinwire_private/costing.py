"""Costs: the predicted bytes, flights and seconds of a query, before anything runs."""

from __future__ import annotations

from typing import Any

from thinwire.texts.rate import parse_rate
from thinwire_private.errors import ModelError
from thinwire_private.ledger import PHASES, Entry, added, by_layer, total
from thinwire_private.net.graph import Graph
from thinwire_private.program import prepare_graph
from thinwire_private.sessions import predicted
from thinwire_private.variant import Variant

Row = dict[str, Any]


def cost_rows(
    graph: Graph, variant: Variant, batch: int, rate: str, round_trip_s: float, operators: bool = False
) -> list[Row]:
    """One row per layer (or operator) and phase, then one per phase, then one for all of it."""
    if variant.tight_acc and not graph.has_weights:
        raise ModelError(f"accumulators of {variant.name} come from the weights: give a .twq file")
    entries = predicted(prepare_graph(graph, variant), variant, batch)
    bytes_per_s = parse_rate(rate) / 8

    def row(entry: Entry) -> Row:
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


def link_seconds(entry: Entry, bytes_per_s: float, round_trip_s: float) -> float:
    """What a link takes when nothing overlaps: bytes / rate + hops * round trip / 2; no computation.

    Hops are flights, but two messages that cross each other on the way count once.
    """
    return entry.predicted_bytes / bytes_per_s + entry.hops * round_trip_s / 2
