"""The ladder: every rung on every network, run by two processes, one picture, bytes as predicted."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

from thinwire_lab.private.computed import ONLY_COMPUTED, computed
from thinwire_lab.private.host import Host
from thinwire_lab.private.parties import Run, run_parties
from thinwire_lab.private.rungs import Rung, rungs_named
from thinwire_lab.private.visitor import Visitor
from thinwire_lab.private.wishes import Row, Say, Wishes
from thinwire_private.costs import PHASES, total
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray, Requant
from thinwire_private.net.oracle import overflows
from thinwire_private.net.zoo import random_pictures
from thinwire_private.program import prepare_graph


def ladder(wishes: Wishes, say: Say) -> Iterator[Row]:
    """One row per network and rung, then the rows that are only computed."""
    for net in wishes.nets:
        for rung in [] if net in ONLY_COMPUTED else rungs_named(wishes.variants, wishes.models):
            settings = {"net": net, "rung": rung.name, "bits": rung.variant.bits, "images": 1}
            say(f"{net} {rung.name}")
            yield wishes.once("ladder", settings, _climb, net, rung)
        if wishes.variants is None:
            for row in computed(net, *rungs_named(("S6",), wishes.models)):
                settings = {"net": net, "rung": row["variant"], "computed": True}
                yield wishes.once("ladder", settings, dict, row)


def _climb(net: str, rung: Rung) -> Row:
    graph = rung.graph(net)
    x, dimmed = calm_picture(prepare_graph(graph, rung.variant))
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(Path(folder), graph, x, Host("", rung.name), Visitor("", "", ""))
    return {"net": net, "variant": rung.name, **summary(run), "dimmed_bits": dimmed}


def calm_picture(graph: Graph, images: int = 1) -> tuple[IntArray, int]:
    """Random pictures, dimmed by so many bits that a graph without clamps does not overflow.

    Where activations overflow, the fast mode with known top bits gives wrong numbers (docs/private.md).
    """
    x = random_pictures(graph, images)
    bits = graph.input.value.bits
    if all(node.clamp for node in graph.of(Requant)):
        return x, 0
    calm = (k for k in range(bits) if not any(each.count for each in overflows(graph, x >> k)))
    dimmed = next(calm, bits)
    return x >> dimmed, dimmed


def summary(run: Run) -> Row:
    """The figures of a run that every table wants."""
    whole = total(run.entries)
    phases = {f"{phase}_bytes": total(run.entries, phase).measured_bytes for phase in PHASES}
    times = {f"{phase}_seconds": round(total(run.entries, phase).seconds, 3) for phase in PHASES}
    return {
        "bytes": whole.measured_bytes,
        "predicted_bytes": whole.predicted_bytes,
        **phases,
        "upload_bytes": whole.measured_uploaded,
        "download_bytes": whole.measured_downloaded,
        "flights": whole.flights,
        "online_flights": total(run.entries, "online").flights,
        "seconds": round(whole.seconds, 3),
        **times,
        "handshake_bytes": run.client["handshake_bytes"],
        "tcp_bytes": run.client["tcp_bytes"],
        "mismatches": run.client["mismatches"],
        "images": run.client["images"],
        "peak_memory_mb": [run.server["peak_memory_mb"], run.client["peak_memory_mb"]],
        "cpu_seconds": [run.server["cpu_seconds"], run.client["cpu_seconds"]],
    }
