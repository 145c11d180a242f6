"""Speed: the convolutions of ResNet-32 at W4A6, batches and peak memory; for a quiet machine."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from thinwire_lab.private.computed import runnable
from thinwire_lab.private.host import Host
from thinwire_lab.private.ladder import summary
from thinwire_lab.private.parties import Run, run_parties
from thinwire_lab.private.rungs import Rung, rungs_named
from thinwire_lab.private.visitor import Visitor
from thinwire_lab.private.wishes import Row, Say, Wishes
from thinwire_private.net.nodes import Conv
from thinwire_private.net.zoo import random_pictures

SCI_SECONDS = 19.0  # ResNet-32's convolutions by SiRNN's code, extrapolated in the note from one layer
BATCHES = (1, 16)


def convolutions(wishes: Wishes, say: Say) -> Iterator[Row]:
    """Seconds of all convolutions: SiRNN's products (with their truncation), then ours."""
    for rung in rungs_named(wishes.variants or ("B1", "S4", "S6-ss8"), wishes.models):
        runs = []
        for repeat in range(wishes.repeats):
            say(f"convolutions of resnet32, {rung.name}, {repeat + 1}")
            settings = {"net": "resnet32", "rung": rung.name, "repeat": repeat}
            runs.append(wishes.once("convolutions", settings, _convolutions, rung))
        seconds = [run["seconds"] for run in runs]
        yield {
            "net": "resnet32",
            "variant": rung.name,
            "seconds": statistics.median(seconds),
            "seconds_low": min(seconds),
            "seconds_high": max(seconds),
            "faster_than_sci": round(SCI_SECONDS / statistics.median(seconds), 2),
        }


def batch(wishes: Wishes, say: Say) -> Iterator[Row]:
    """Batch 1 and 16: bytes and seconds an image, the most memory of either party."""
    (rung,) = rungs_named(("ours",), wishes.models)
    for net in runnable(wishes.nets):
        for size in BATCHES:
            say(f"{net}, batch {size}")
            settings = {"net": net, "rung": "ours", "batch": size}
            yield wishes.once("batch", settings, _batch, rung, net, size)


def _batch(rung: Rung, net: str, size: int) -> Row:
    figures = summary(_run(rung, net, size))
    each = {f"{name}_an_image": figures[name] / size for name in ("bytes", "online_bytes", "seconds")}
    return {"net": net, "variant": "ours", "batch": size, **figures, **each}


def _convolutions(rung: Rung) -> Row:
    graph = rung.graph("resnet32")
    run = _run(rung, "resnet32", 1)
    names = {node.name for node in graph.of(Conv)}
    # Extensions belong to activations; ours needs them for its products.
    own = [entry for entry in run.entries if entry.layer in names or entry.operator == "extend"]
    return {
        "seconds": round(sum(entry.seconds for entry in own), 3),
        "bytes": sum(entry.measured_bytes for entry in own),
        "operators": sorted({entry.operator for entry in own}),
        "all_seconds": summary(run)["seconds"],
    }


def _run(rung: Rung, net: str, size: int) -> Run:
    graph = rung.graph(net)
    with tempfile.TemporaryDirectory() as folder:
        return run_parties(
            Path(folder),
            graph,
            random_pictures(graph, size),
            Host("", rung.name),
            Visitor("", "", "", batch=size),
        )
