"""The tables of Figure 5: every cell's error, the fitted parameters, and our own formats beside them."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.perf.figure5.cells import CLUSTERS, GPUS, NETWORKS, STATED_BATCHES
from thinwire.perf.figure5.fit import RING, TWO_COPIES, Cluster, fit
from thinwire.perf.figure5.judged import CELL_LIMIT, MEDIAN_LIMIT, Table
from thinwire.perf.figure5.ours import Curve
from thinwire.perf.forecast import DENSE
from thinwire.perf.tables import Cells, number


def errors(table: Table) -> Cells:
    """A line for each row of the figure: the model's error in every cell, in percent.

    Fitted cells are in brackets; a cell from which latency was fitted is in angles.
    """
    heads = ["cluster, network, wire", *(f"{gpus}" for gpus in GPUS)]
    marks = {"fitted": "({})", "seen": "<{}>", "held out": "{}"}
    lines: dict[str, list[str]] = {}
    for row in table.rows:
        name = f"{row.cell.cluster}, {row.cell.network}, {row.cell.wire}"
        lines.setdefault(name, []).append(marks[row.role].format(f"{100 * row.error:+.1f}"))
    return heads, [[name, *cells] for name, cells in lines.items()]


def parameters(table: Table) -> Cells:
    """What was fitted, in the units of data sheets."""
    clusters = list(table.clusters.values())
    rows = [
        ["form", *(cluster.form for cluster in clusters)],
        *(
            [f"{name}, images a second and GPU", *(_rate(cluster, name) for cluster in clusters)]
            for name in NETWORKS
        ),
        ["inside a node", *(_bandwidth(cluster.inside) for cluster in clusters)],
        ["staging, once if nodes > 1", *(_bandwidth(cluster.staging) for cluster in clusters)],
        ["network", *(_bandwidth(cluster.network) for cluster in clusters)],
        ["codec, ns an element", *(f"{1e9 * cluster.codec:.3f}" for cluster in clusters)],
        ["latency a hop", *(f"{1e6 * cluster.latency_s:.1f} us" for cluster in clusters)],
        ["misfit of the fitted cells", *(f"{cluster.misfit:.1f}" for cluster in clusters)],
    ]
    return ["parameter", *(cluster.name for cluster in clusters)], rows


def alternatives() -> Cells:
    """What the fitted cells say of other forms, and of the batch that the paper states for AlexNet."""
    names = list(CLUSTERS)
    rows = [
        ["ring", *(f"{fit(name, RING).misfit:.0f}" for name in names)],
        [TWO_COPIES, *(f"{fit(name, TWO_COPIES).misfit:.0f}" for name in names)],
        [
            "the better of them, AlexNet's batch 128",
            *(f"{fit(name, None, STATED_BATCHES).misfit:.0f}" for name in names),
        ],
    ]
    return ["misfit, cells up to 16 GPUs", *names], rows


def verdict(table: Table) -> str:
    """One sentence: whether the goal is met, and the worst cell."""
    worst = table.worst
    met = "met" if table.reached else "NOT met"
    cell = f"{worst.cell.cluster}, {worst.cell.network}, {worst.cell.wire}, {worst.cell.gpus} GPUs"
    return (
        f"{len(table.held_out)} held-out cells: median error {table.median_error:.1%} "
        f"(goal {MEDIAN_LIMIT:.0%}), worst {worst.error:+.1%} ({cell}; "
        f"goal {CELL_LIMIT:.0%} beyond what digitising may be off): {met}"
    )


def ours(curves: Sequence[Curve], gpus: int) -> Cells:
    """Speed against dense of every codec at one number of GPUs; dense in images a second."""
    codecs = list(dict.fromkeys(curve.codec for curve in curves))
    found = {(curve.cluster, curve.network, curve.codec): curve for curve in curves}
    heads = [f"{gpus:,} GPUs", "dense, images/s", *(codec for codec in codecs if codec != DENSE)]
    rows = []
    for cluster, network in dict.fromkeys((curve.cluster, curve.network) for curve in curves):
        at = {codec: _at(found[cluster, network, codec], gpus) for codec in codecs}
        dense = at[DENSE]
        assert dense is not None
        others = (_against(at[codec], dense) for codec in codecs if codec != DENSE)
        rows.append([f"{cluster}, {network}", number(dense), *others])
    return heads, rows


def _against(value: float | None, dense: float) -> str:
    return "cannot" if value is None else f"{value / dense:.2f}x"


def _at(curve: Curve, gpus: int) -> float | None:
    one = next(made for made in curve.forecasts if made.setting.topology.workers == gpus)
    return None if one.refusal else one.examples_per_s


def _rate(cluster: Cluster, network: str) -> str:
    return f"{cluster.batches[network] / cluster.compute_s[network]:.1f}"


def _bandwidth(seconds_a_byte: float) -> str:
    if not seconds_a_byte:
        return "not seen"
    return f"{1e-6 / seconds_a_byte:,.0f} MB/s"
