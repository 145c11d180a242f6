"""Computed rows of the ladder: what is predicted and never run here, and is marked so."""

from __future__ import annotations

from collections.abc import Iterator

from thinwire_lab.private.rungs import Rung
from thinwire_lab.private.wishes import Row
from thinwire_private.copriv import copriv_costs
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build
from thinwire_private.program import compile_graph
from thinwire_private.variant import variant

ONLY_COMPUTED = ("resnet50",)  # 20 GB and more a picture
FERRET_BITS = 0.28  # of the wire per random OT, from emp-ot's own table
SOFTSPOKEN_BITS = {"S6-ss4": 32, "S6-ss8": 16}
TOO_BIG = ("B0", "B0'", "W8A8", "B1", "B1'", "S1", "S2", "S3", "S4")


def computed(net: str, mixed: Rung) -> Iterator[Row]:
    """CoPriv-like with and without Winograd, Ferret, and whole networks that are too big."""
    widths = build(net, read_bits("W4A6"))
    for name, winograd in (("CoPriv-like", True), ("CoPriv-like without Winograd", False)):
        costs = [row.traffic for row in copriv_costs(widths, winograd=winograd)]
        yield _row(net, name, sum(c.total_bytes for c in costs), sum(c.flights for c in costs))
    if net in ONLY_COMPUTED:
        for name in TOO_BIG:
            chosen = variant(name)
            yield _predicted(net, name, build(net, read_bits(chosen.bits)), name)
        for bits in ("W4A6", "W2A6"):
            yield _predicted(net, f"ours at {bits}", build(net, read_bits(bits)), "ours")
        return
    graph = mixed.graph(net).public()
    four, eight = (compile_graph(graph, variant(name)).total().total_bytes for name in SOFTSPOKEN_BITS)
    # All costs are linear in the bits per OT, so two SoftSpokens give the line that Ferret is on.
    slope = (four - eight) / (SOFTSPOKEN_BITS["S6-ss4"] - SOFTSPOKEN_BITS["S6-ss8"])
    ferret = round(eight - slope * (SOFTSPOKEN_BITS["S6-ss8"] - FERRET_BITS))
    yield _row(net, "S6 on Ferret, without its set-up", ferret, None)


def runnable(nets: tuple[str, ...]) -> list[str]:
    """The networks that are small enough to be run."""
    return [net for net in nets if net not in ONLY_COMPUTED]


def _predicted(net: str, label: str, graph: Graph, name: str) -> Row:
    program = compile_graph(graph, variant(name))
    whole, online = program.total(), program.total("online")
    return {**_row(net, label, whole.total_bytes, whole.flights), "online_bytes": online.total_bytes}


def _row(net: str, label: str, num_bytes: int, flights: int | None) -> Row:
    return {
        "net": net,
        "variant": label,
        "computed": True,
        "bytes": num_bytes,
        "online_bytes": None,
        "flights": flights,
        "seconds": None,
    }
