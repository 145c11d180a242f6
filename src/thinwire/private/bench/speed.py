"""Speed: the convolutions of ResNet-32 at W4A6, batches and peak memory; for a quiet machine."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from thinwire.private.bench.host import Host
from thinwire.private.bench.ladder import summary
from thinwire.private.bench.parties import Run, run_parties
from thinwire.private.bench.rungs import RUNGS, Rung
from thinwire.private.bench.visitor import Visitor
from thinwire.private.bench.wishes import Row, Say, Wishes
from thinwire.private.ledger import Entry
from thinwire.private.net.draw import random_pictures
from thinwire.private.net.nodes import Conv

SCI_SECONDS = 19.0  # ResNet-32's convolutions by SiRNN's code, extrapolated in the note from one layer
BATCHES = (1, 16)


def convolutions(wishes: Wishes, say: Say) -> Iterator[Row]:
    """Seconds of all convolutions: SiRNN's products (with their truncation), then ours."""
    for name in wishes.variants or ("B1", "S4", "S6-ss8"):
        runs = []
        for repeat in range(wishes.repeats):
            say(f"convolutions of resnet32, {name}, {repeat + 1}")
            settings = {"net": "resnet32", "rung": name, "repeat": repeat}
            runs.append(wishes.once("convolutions", settings, _convolutions, RUNGS[name], wishes))
        seconds = [run["seconds"] for run in runs]
        yield {
            "net": "resnet32",
            "variant": name,
            "seconds": statistics.median(seconds),
            "seconds_low": min(seconds),
            "seconds_high": max(seconds),
            "faster_than_sci": round(SCI_SECONDS / statistics.median(seconds), 2),
        }


def batch(wishes: Wishes, say: Say) -> Iterator[Row]:
    """Batch 1 and 16: bytes and seconds an image, the most memory of either party."""
    for net in wishes.nets:
        for size in BATCHES:
            say(f"{net}, batch {size}")
            settings = {"net": net, "rung": "ours", "batch": size}
            yield wishes.once("batch", settings, _batch, net, size, wishes)


def _batch(net: str, size: int, wishes: Wishes) -> Row:
    figures = summary(_run(RUNGS["ours"], net, size, wishes))
    each = {f"{name}_an_image": figures[name] / size for name in ("bytes", "online_bytes", "seconds")}
    return {"net": net, "variant": "ours", "batch": size, **figures, **each}


def _convolutions(rung: Rung, wishes: Wishes) -> Row:
    graph = rung.graph("resnet32", wishes.models)
    run = _run(rung, "resnet32", 1, wishes)
    names = {node.name for node in graph.of(Conv)}
    own = [entry for entry in run.entries if entry.layer in names and not _is_relu(entry)]
    return {
        "seconds": round(sum(entry.seconds for entry in own), 3),
        "bytes": sum(entry.measured_bytes for entry in own),
        "operators": sorted({entry.operator for entry in own}),
        "all_seconds": summary(run)["seconds"],
    }


def _is_relu(entry: Entry) -> bool:
    return "relu" in entry.operator.lower()


def _run(rung: Rung, net: str, size: int, wishes: Wishes) -> Run:
    graph = rung.graph(net, wishes.models)
    with tempfile.TemporaryDirectory() as folder:
        return run_parties(
            Path(folder),
            graph,
            random_pictures(graph, size),
            Host("", rung.variant),
            Visitor("", "", "", batch=size),
        )
