"""The demo: a digits CNN trained on the spot, then private predictions between two processes."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from thinwire_lab.private.host import Host
from thinwire_lab.private.parties import Row, run_parties
from thinwire_lab.private.report import Outcome, write_page
from thinwire_lab.private.visitor import Visitor
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.oracle import predict
from thinwire_private.net.twq import read_twq
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build

BITS = "W4A6"
EPOCHS = (8, 3)  # in floating point, then on the integer grid: a few seconds
Say = Callable[[str], None]
Step = Callable[[int, int, str], None]


def run_demo(
    images: int, variant: str, model: Path | None, out: Path, command: str, say: Say, step: Step
) -> tuple[Outcome, Path]:
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
            Host("", variant),
            Visitor("", "", ""),
            tell=lambda row: _progress(row, step),
        )
    outcome = Outcome(
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


def trained_digits(bits: str = BITS, seed: int = 0) -> Graph:
    """A digits network in a few seconds."""
    import torch

    from thinwire_lab.private.tasks import load_pictures
    from thinwire_private.train.fit import fit, float_schedule, grid_schedule
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


def _progress(row: Row, step: Step) -> None:
    if row["row"] == "query":
        step(row["done"], row["of"], "private predictions")
