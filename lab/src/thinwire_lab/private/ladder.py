"""The ladder from SiRNN to ours: every rung on every network, run by two processes, bytes as predicted.

Also what only is computed (too big to run), whole test sets with every logit compared, and seconds and memory
of convolutions and batches, for a quiet machine.
"""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import PrivateError
from thinwire_lab.data import load_task
from thinwire_lab.private.demo import trained_digits
from thinwire_lab.private.parties import BenchClient, BenchServer, PartiesRun, run_parties
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.compiler import compile_graph, prepare_graph
from thinwire_private.copriv import copriv_costs
from thinwire_private.costs import PHASES, total
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Conv, IntArray, Requant
from thinwire_private.net.oracle import overflows, predict
from thinwire_private.net.twq import read_twq
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import LIST, LISTS, build, random_pictures, read_net, with_random_weights
from thinwire_private.variant import VARIANTS, Variant, variant

ONLY_COMPUTED = ("resnet50",)  # 20 GB and more a picture
FERRET_BITS = 0.28  # of the wire per random OT, from emp-ot's own table
SOFTSPOKEN_BITS = {"S6-ss4": 32, "S6-ss8": 16}
TOO_BIG = ("B0", "B0'", "W8A8", "B1", "B1'", "S1", "S2", "S3", "S4")
SCI_SECONDS = 19.0  # ResNet-32's convolutions by SiRNN's code, extrapolated in the note from one layer
BATCHES = (1, 16)
CIFAR_IMAGES = 100


@dataclass(frozen=True)
class Rung:
    """A variant, and the folder in which trained models may be."""

    variant: Variant
    models: Path | None = None

    @property
    def name(self) -> str:
        """As the ladder calls it."""
        return self.variant.name

    def graph(self, net: str) -> Graph:
        """The network with weights: trained ones if there is a file NET-BITS.twq, else random ones."""
        bits = self.variant.bits
        file = None if self.models is None else self.models / f"{net}-{bits}.twq"
        if file is not None and file.exists():
            return read_twq(file).graph
        if bits != LIST:
            return with_random_weights(build(net, read_bits(bits)))
        if net not in LISTS:
            raise PrivateError(
                f"the mixed widths of {net} come from a search: put {net}-{LIST}.twq into --models "
                "(thinwire private search makes it)"
            )
        return with_random_weights(read_net(f"{net}:{LIST}"))


def rungs_named(names: tuple[str, ...] | None, models: Path | None = None) -> list[Rung]:
    """These rungs, or all of them."""
    return [Rung(variant(name), models) for name in (names or VARIANTS)]


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


def ladder(options: BenchOptions, say: Say) -> Iterator[Row]:
    """One row per network and rung, then the rows that are only computed."""
    for net in options.nets:
        for rung in [] if net in ONLY_COMPUTED else rungs_named(options.variants, options.models):
            settings = {"net": net, "rung": rung.name, "bits": rung.variant.bits, "images": 1}
            say(f"{net} {rung.name}")
            yield options.once("ladder", settings, _climb, net, rung)
        if options.variants is None:
            for row in computed(net, *rungs_named(("S6",), options.models)):
                settings = {"net": net, "rung": row["variant"], "computed": True}
                yield options.once("ladder", settings, dict, row)


def _climb(net: str, rung: Rung) -> Row:
    graph = rung.graph(net)
    x, dimmed = calm_picture(prepare_graph(graph, rung.variant))
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(Path(folder), graph, x, BenchServer("", rung.name), BenchClient("", "", ""))
    return {"net": net, "variant": rung.name, **summary(run), "dimmed_bits": dimmed}


def calm_picture(graph: Graph, images: int = 1) -> tuple[IntArray, int]:
    """Random pictures, dimmed by so many bits that a graph without clamps does not overflow.

    Where activations overflow, the fast mode with known top bits gives wrong numbers (private.md).
    """
    x = random_pictures(graph, images)
    bits = graph.input.value.bits
    if all(node.clamp for node in graph.of(Requant)):
        return x, 0
    calm = (k for k in range(bits) if not any(each.count for each in overflows(graph, x >> k)))
    dimmed = next(calm, bits)
    return x >> dimmed, dimmed


def summary(run: PartiesRun) -> Row:
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


def convolutions(options: BenchOptions, say: Say) -> Iterator[Row]:
    """Seconds of all convolutions: SiRNN's products (with their truncation), then ours."""
    for rung in rungs_named(options.variants or ("B1", "S4", "S6-ss8"), options.models):
        runs = []
        for repeat in range(options.repeats):
            say(f"convolutions of resnet32, {rung.name}, {repeat + 1}")
            settings = {"net": "resnet32", "rung": rung.name, "repeat": repeat}
            runs.append(options.once("convolutions", settings, _convolutions, rung))
        seconds = [run["seconds"] for run in runs]
        yield {
            "net": "resnet32",
            "variant": rung.name,
            "seconds": statistics.median(seconds),
            "seconds_low": min(seconds),
            "seconds_high": max(seconds),
            "faster_than_sci": round(SCI_SECONDS / statistics.median(seconds), 2),
        }


def batch(options: BenchOptions, say: Say) -> Iterator[Row]:
    """Batch 1 and 16: bytes and seconds an image, the most memory of either party."""
    (rung,) = rungs_named(("ours",), options.models)
    for net in runnable(options.nets):
        for size in BATCHES:
            say(f"{net}, batch {size}")
            settings = {"net": net, "rung": "ours", "batch": size}
            yield options.once("batch", settings, _batch, rung, net, size)


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


def _run(rung: Rung, net: str, size: int) -> PartiesRun:
    graph = rung.graph(net)
    with tempfile.TemporaryDirectory() as folder:
        return run_parties(
            Path(folder),
            graph,
            random_pictures(graph, size),
            BenchServer("", rung.name),
            BenchClient("", "", "", batch=size),
        )


def digits(options: BenchOptions, say: Say) -> Iterator[Row]:
    """All 360 test pictures of digits, by ours on SoftSpoken<8> and on KK13 with IKNP."""
    graph = _model(options, "digits-list.twq") or _model(options, "digits-W4A6.twq") or trained_digits()
    for name in options.variants or ("ours", "S6-clamp"):
        settings = {"net": "digits", "variant": name, "images": "all", "macs": graph.macs}
        say(f"digits, whole test set, {name}")
        yield options.once("whole", settings, _compare, "digits", graph, name, None, options, say)


def cifar10(options: BenchOptions, say: Say) -> Iterator[Row]:
    """100 test pictures of CIFAR-10 by a trained ResNet-8."""
    graph = _model(options, "resnet8w-list.twq") or _model(options, "resnet8w-W4A6.twq")
    if graph is None:
        raise PrivateError(
            "this bench needs a trained ResNet-8: put resnet8w-list.twq into the folder of --models "
            "(thinwire private train cifar10 makes one)"
        )
    for name in options.variants or ("ours",):
        settings = {"net": "resnet8w", "variant": name, "images": CIFAR_IMAGES}
        say(f"cifar10, {CIFAR_IMAGES} images, {name}")
        yield options.once("whole", settings, _compare, "cifar10", graph, name, CIFAR_IMAGES, options, say)


def _compare(task: str, graph: Graph, name: str, images: int | None, options: BenchOptions, say: Say) -> Row:
    test = load_task(task, options.data, say).test
    x, labels = test.x[:images].astype("int64"), test.y[:images]
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(Path(folder), graph, x, BenchServer("", name), BenchClient("", "", ""))
    return {
        "task": task,
        "net": graph.name,
        "variant": name,
        **summary(run),
        "accuracy": round(float((predict(graph, x) == labels).mean()), 4),
        "clamped": sum(each.count for each in overflows(graph, x)),
        "seconds_an_image": round(run.client["seconds"] / len(x), 3),
    }


def _model(options: BenchOptions, name: str) -> Graph | None:
    file = None if options.models is None else options.models / name
    return read_twq(file).graph if file is not None and file.exists() else None
