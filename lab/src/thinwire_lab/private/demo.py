"""The demo: a digits CNN trained on the spot, private predictions between two processes, and their page."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from thinwire_lab.private.parties import BenchClient, BenchServer, Row, run_parties
from thinwire_lab.report.drawing import bare, inline_svg, new_figure
from thinwire_lab.report.page import facts, heading, page, paragraph, table
from thinwire_private.costs import PHASES, CostEntry, by_layer, by_operator, total
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.oracle import predict
from thinwire_private.net.twq import read_twq
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLOURS = ("#2563eb", "#f59e0b", "#10b981", "#ef4444", "#8b5cf6", "#06b6d4", "#84cc16", "#ec4899", "#64748b")
HEADS = ("layer", "operator", "phase", "predicted bytes", "measured bytes", "flights", "seconds")
Cells = list[list[str]]
LEAST_SHARE = 0.01
BITS = "W4A6"
EPOCHS = (8, 3)  # in floating point, then on the integer grid: a few seconds
Say = Callable[[str], None]
Step = Callable[[int, int, str], None]


@dataclass(frozen=True)
class DemoResult:
    """What a private run gave, with everything the page tells about it."""

    title: str
    network: str
    variant: str
    images: int
    mismatches: int
    correct: int | None
    entries: Sequence[CostEntry]
    handshake_bytes: int
    tcp_bytes: int | None
    seconds: float
    command: str

    @property
    def matches(self) -> bool:
        """Whether every prediction equals the plaintext one and every byte was predicted."""
        whole = total(self.entries)
        return self.mismatches == 0 and whole.predicted_bytes == whole.measured_bytes

    def row(self) -> dict[str, Any]:
        """The closing row of --json."""
        whole = total(self.entries)
        return {
            "row": "total",
            "predicted_bytes": whole.predicted_bytes,
            "measured_bytes": whole.measured_bytes,
            "online_bytes": total(self.entries, "online").measured_bytes,
            "mismatches": self.mismatches,
            "images": self.images,
            "correct": self.correct,
            "flights": whole.flights,
            "handshake_bytes": self.handshake_bytes,
            "tcp_bytes": self.tcp_bytes,
            "seconds": round(self.seconds, 3),
        }


def run_demo(
    images: int, variant: str, model: Path | None, out: Path, command: str, say: Say, step: Step
) -> tuple[DemoResult, Path]:
    """Train or read a model, predict privately, compare with the plaintext, write the page."""
    start = time.perf_counter()
    if model is None:
        say(f"training a CNN on digits with {BITS} integers ...")
    graph = trained_digits() if model is None else read_twq(model).graph
    x, labels = digits_test(images)
    say(f"{len(x)} private predictions between two processes, protocols: {variant}")
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(
            Path(folder),
            graph,
            x,
            BenchServer("", variant),
            BenchClient("", "", ""),
            tell=lambda row: _progress(row, step),
        )
    outcome = DemoResult(
        title=f"{len(x)} private predictions on digits",
        network=f"{graph.name}, {graph.macs:,} multiplications, {graph.relus:,} ReLUs an image",
        variant=variant,
        images=len(x),
        mismatches=run.client["mismatches"],
        correct=int((predict(graph, x) == labels).sum()),
        entries=run.entries,
        handshake_bytes=run.client["handshake_bytes"],
        tcp_bytes=run.client["tcp_bytes"],
        seconds=time.perf_counter() - start,
        command=command,
    )
    folder_out = out / time.strftime("private-demo-%Y%m%d-%H%M%S")
    write_page(outcome, folder_out / "report.html")
    return outcome, folder_out


def _progress(row: Row, step: Step) -> None:
    if row["row"] == "query":
        step(row["done"], row["of"], "private predictions")


def trained_digits(bits: str = BITS, seed: int = 0) -> Graph:
    """A digits network in a few seconds."""
    import torch

    from thinwire_lab.private.study import float_schedule, grid_schedule, load_pictures
    from thinwire_private.train.fit import fit
    from thinwire_private.train.qnet import QNet
    from thinwire_private.train.run import export

    pictures = load_pictures("digits")
    torch.set_num_threads(1)  # so small a network only loses by more
    torch.manual_seed(seed)
    net = QNet(build("digits", read_bits(bits)))
    fit(net, pictures, float_schedule("digits", EPOCHS[0]), seed)
    net.quantize(pictures.x[:256])
    fit(net, pictures, grid_schedule("digits", EPOCHS[1]), seed)
    return export(net)


def digits_test(images: int | None = None) -> tuple[IntArray, IntArray]:
    """The first pictures of the digits test set, and their labels."""
    from thinwire_lab.data import load_task

    test = load_task("digits").test
    return test.x[:images].astype(np.int64), test.y[:images].astype(np.int64)


def entry_rows(entries: Sequence[CostEntry]) -> Cells:
    """Entries as cells under HEADS; steps without traffic only where they take their time."""
    least_s = LEAST_SHARE * total(entries).seconds
    shown = [entry for entry in entries if entry.measured_bytes or entry.seconds > least_s]
    return [[entry.layer, entry.operator, entry.phase, *_figures(entry)] for entry in shown]


def phase_rows(outcome: DemoResult) -> Cells:
    """Setup, offline, online, and all of it; per image where that means something."""
    rows = []
    for phase in PHASES:
        whole = total(outcome.entries, phase)
        images = 1 if phase == "setup" else outcome.images
        each = f"{whole.measured_bytes / images / 1e6:.3f} MB" + ("" if phase == "setup" else " an image")
        rows.append([phase, *_figures(whole), each])
    return [*rows, ["all", *_figures(total(outcome.entries)), ""]]


def verdict(outcome: DemoResult) -> str:
    """The point in one or two sentences."""
    whole = total(outcome.entries)
    equal = (
        "all logits equal the plaintext ones bit for bit"
        if outcome.mismatches == 0
        else f"{outcome.mismatches} of {outcome.images} predictions differ from the plaintext"
    )
    difference = whole.measured_bytes - whole.predicted_bytes
    counted = (
        "exactly as many bytes crossed the wire as were predicted"
        if difference == 0
        else f"{difference:+,} bytes differ from the prediction"
    )
    return f"{outcome.images} private predictions: {equal}; {counted}."


def write_page(outcome: DemoResult, path: Path) -> None:
    """A page that needs nothing but itself."""
    online = total(outcome.entries, "online")
    parts = [
        f"<h1>{outcome.title}</h1>",
        paragraph(verdict(outcome)),
        paragraph(
            "The server holds the weights, the client the images; each sees only random-looking shares "
            "of the other's numbers. Semi-honest security, not audited."
        ),
        table(
            ("phase", "predicted bytes", "measured bytes", "flights", "seconds", ""),
            phase_rows(outcome),
            "headline",
        ),
        heading("Bytes by layer"),
        paragraph("Offline traffic needs no image; online traffic is what a client waits for.", quiet=True),
        inline_svg(layer_figure(outcome)),
        heading("Bytes and seconds by operator"),
        inline_svg(operator_figure(outcome)),
        heading("Every layer and operator"),
        table(HEADS, entry_rows(outcome.entries), "plain"),
        heading("How it was run"),
        facts(
            [
                ("network", outcome.network),
                ("protocols", outcome.variant),
                ("images", str(outcome.images)),
                ("online time", f"{online.seconds / max(1, outcome.images):.3f} s an image"),
                ("handshake", f"{outcome.handshake_bytes:,} bytes, not in the tables"),
                (
                    "below TLS",
                    "not reported by this kernel"
                    if outcome.tcp_bytes is None
                    else f"{outcome.tcp_bytes:,} bytes",
                ),
                ("command", outcome.command),
            ],
            code=["command"],
        ),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(page(outcome.title, parts))


def layer_figure(outcome: DemoResult) -> Figure:
    """Megabytes per layer and image, offline and online stacked."""
    entries = [entry for entry in by_layer(outcome.entries) if entry.phase != "setup"]
    in_order = [entry.layer for entry in entries if entry.phase == "online"]  # every layer has its turn there
    busy = {entry.layer for entry in entries if entry.measured_bytes}
    layers = [layer for layer in dict.fromkeys(in_order) if layer in busy]
    sizes = {(e.layer, e.phase): e.measured_bytes / outcome.images / 1e6 for e in entries}
    figure = new_figure(9, 0.8 + 0.26 * len(layers))
    _stacked(figure.subplots(), layers, sizes, "MB an image")
    return _with_legend(figure)


def operator_figure(outcome: DemoResult) -> Figure:
    """Megabytes and milliseconds per operator and image, side by side."""
    entries = [entry for entry in by_operator(outcome.entries) if entry.phase != "setup"]
    names = list(dict.fromkeys(entry.operator for entry in entries if entry.measured_bytes))
    sizes = {(e.operator, e.phase): e.measured_bytes / outcome.images / 1e6 for e in entries}
    times = {(e.operator, e.phase): e.seconds / outcome.images * 1e3 for e in entries}
    figure = new_figure(9, 0.9 + 0.3 * len(names))
    left, right = figure.subplots(1, 2, sharey=True)
    _stacked(left, names, sizes, "MB an image")
    _stacked(right, names, times, "milliseconds an image")
    return _with_legend(figure)


def _stacked(axes: Axes, names: list[str], values: dict[tuple[str, str], float], title: str) -> None:
    """A bar for each name, the first at the top: offline, then online."""
    begins = [0.0] * len(names)
    for phase, colour in (("offline", "#cbd5e1"), ("online", COLOURS[0])):
        own = [values.get((name, phase), 0.0) for name in names]
        axes.barh(names, own, left=begins, height=0.7, color=colour, label=phase)
        begins = [begin + value for begin, value in zip(begins, own, strict=True)]
    axes.set(xlabel=title, ylim=(len(names) - 0.5, -0.5))
    bare(axes)


def _with_legend(figure: Figure) -> Figure:
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower left", ncols=2, frameon=False)
    return figure


def _figures(entry: CostEntry) -> list[str]:
    return [
        f"{entry.predicted_bytes:,}",
        f"{entry.measured_bytes:,}",
        f"{entry.flights:,}",
        f"{entry.seconds:.3f}",
    ]
