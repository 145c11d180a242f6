"""Study: accuracy against bytes, bit widths found by the search beside uniform ones of equal bytes.

Tasks of the lab become pictures and training plans; recorded runs become a table, a sentence and a picture.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from statistics import mean, stdev
from types import MappingProxyType
from typing import Any

import torch

from thinwire.errors import LabError
from thinwire_lab.data import load_task
from thinwire_lab.data.task import Say, shift_and_flip
from thinwire_lab.private.records import BenchRecords
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, GraphNode, Requant
from thinwire_private.net.twq import QuantizedModel, write_twq
from thinwire_private.net.widths import Bits, bits_from_facts, bits_to_facts, fit_accumulators, read_bits
from thinwire_private.net.zoo import ZOO, build
from thinwire_private.train.fit import Pictures, TrainingSchedule
from thinwire_private.train.qnet import QNet
from thinwire_private.train.run import Tell, TrainingPlan, drafted, pretrain, tune
from thinwire_private.train.search import Found, Space, picture_bytes, search
from thinwire_private.train.sensitivity import Omega, measure
from thinwire_private.train.trace import traced, user_model

DEFAULTS: Mapping[str, str] = MappingProxyType({"digits": "digits", "cifar10": "resnet8w"})
AUGMENTED = ("cifar10",)
Row = dict[str, Any]
RECORDS = BenchRecords("accuracy")
SENSED = 512  # training pictures that sensitivities are measured on
COLOURS = {"uniform": "#6b7280", "search": "#d55e00"}
NAMES = {"uniform": "uniform bit widths", "search": "found by the search"}


def load_pictures(task: str, data: Path | None = None, say: Say = lambda _: None) -> Pictures:
    """The pictures of a lab task."""
    found = load_task(task, data, say)
    if not found.mean:
        raise LabError(f"task {task!r} has no pictures: choose digits, mnist, fashion-mnist or cifar10")
    tensors = [
        torch.from_numpy(part.copy()) for split in (found.train, found.test) for part in (split.x, split.y)
    ]
    x, y, test_x, test_y = tensors
    augment = shift_and_flip if task in AUGMENTED else None
    return Pictures(task, x, y.long(), test_x, test_y.long(), augment)


def plan_for(task: str, net: str | None = None, data: Path | None = None) -> TrainingPlan:
    """The plan of a task and of a network's name, or `module:function`."""
    name = net or DEFAULTS.get(task)
    if name is None:
        raise ModelError(f"task {task!r} has no network of its own: name one with --net")
    pictures = load_pictures(task, data)
    if ":" in name:
        model = user_model(name)
        found = traced(model, tuple(pictures.x.shape[1:]), int(pictures.x.max()).bit_length())
        plan = TrainingPlan(name, pictures, found.draw, found.fill)
    else:
        plan = TrainingPlan(name, pictures, partial(build, name))
    pictures.check(plan.draw(Bits()))
    return plan


def float_schedule(task: str, epochs: float | None = None) -> TrainingSchedule:
    """How a network is trained in floating point."""
    if task == "digits":
        return TrainingSchedule(epochs or 30, 0.2, 64)
    return TrainingSchedule(epochs or 10, 0.4, 256)


def grid_schedule(task: str, epochs: float | None = None) -> TrainingSchedule:
    """How a trained network is tuned on the integer grid."""
    if task == "digits":
        return TrainingSchedule(epochs or 10, 2e-3, 64, 0.0)
    return TrainingSchedule(epochs or 2, 2e-3, 256, 0.0)


def shifts_of(graph: Graph) -> dict[str, Any]:
    """The trained shifts: with the bits, all that the bytes of a network of the zoo depend on."""
    shifts: dict[str, Any] = {node.name: node.shift for node in graph.of(Requant)}
    return shifts | {node.name: list(node.shifts) for node in graph.of(Add)}


def with_current_bytes(row: Row) -> Row:
    """A recorded run with its bytes under the protocols of today; of networks outside the zoo as recorded."""
    if row["net"] not in ZOO:
        return row
    graph = build(row["net"], bits_from_facts(row["bits"]))

    def shifted(node: GraphNode) -> GraphNode:
        match node:
            case Requant():
                return replace(node, shift=row["shifts"][node.name])
            case Add():
                first, second = row["shifts"][node.name]
                return replace(node, shifts=(first, second))
            case _:
                return node

    nodes = fit_accumulators([shifted(node) for node in graph])
    return {**row, "bytes": picture_bytes(replace(graph, nodes=nodes))}


@dataclass(frozen=True)
class AccuracyStudy:
    """One network on one task: for every rival width and seed a uniform run and a searched one.

    The budget of a search is what its rival costs. `one_float`: all seeds tune the floating-point network of
    seed 0; else every seed trains its own.
    """

    plan: TrainingPlan
    rivals: tuple[str, ...]
    seeds: tuple[int, ...]
    work: Path
    float_epochs: float
    epochs: float
    one_float: bool = False
    weights: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    activations: tuple[int, ...] = (2, 3, 4, 5, 6, 8)
    measure: str = "full-fisher"
    searched: tuple[str, ...] | None = None  # rivals that get a search beside them; None: all
    models: Path | None = None  # where model files of new runs go
    records: BenchRecords = RECORDS
    tell: Tell = field(default=lambda *_: None, repr=False)

    def run(self, say: Callable[[Row], None] = lambda _: None) -> Iterator[Row]:
        """Every run that is not recorded yet; yields all rows."""
        starts: dict[int, _Start] = {}
        for seed in self.seeds:
            float_seed = 0 if self.one_float else seed
            start = starts.setdefault(float_seed, _Start(self, float_seed))
            for rival in self.rivals:
                kinds = (
                    ("uniform", "search") if self.searched is None or rival in self.searched else ("uniform",)
                )
                for kind in kinds:
                    row = self._point(start, kind, rival, seed)
                    say(row)
                    yield row

    def _point(self, start: _Start, kind: str, rival: str, seed: int) -> Row:
        settings = {
            "task": self.plan.pictures.task,
            "net": self.plan.name,
            "kind": kind,
            "rival": rival,
            "seed": seed,
            "float_seed": start.seed,
            "float_epochs": self.float_epochs,
            "epochs": self.epochs,
        }
        if kind == "search":
            settings |= {"measure": self.measure, "activations": "at least the rival's"}
        result = self.records.once(settings, lambda: self._train(start, kind, rival, seed))
        return {**settings, **result}

    def _train(self, start: _Start, kind: str, rival: str, seed: int) -> Row:
        bits = read_bits(rival) if kind == "uniform" else start.find(rival).bits
        schedule = grid_schedule(self.plan.pictures.task, self.epochs)
        result = tune(
            copy.deepcopy(start.net),
            self.plan.draw,
            bits,
            self.plan.pictures,
            schedule,
            seed,
            float_accuracy=start.accuracy,
            tell=self.tell,
        )
        if self.models is not None:
            self.models.mkdir(parents=True, exist_ok=True)
            name = f"{self.plan.name}-{kind}-{rival}-{seed}.twq".replace(":", "-")
            facts = {"net": self.plan.name, "task": self.plan.pictures.task, "seed": seed, **result.row()}
            write_twq(self.models / name, QuantizedModel(result.graph, facts))
        return {
            **result.row(),
            "bytes": picture_bytes(result.graph),
            "bits": bits_to_facts(bits),
            "shifts": shifts_of(result.graph),
        }


class _Start:
    """A floating-point network, trained or read when it is first needed, and what was measured on it."""

    def __init__(self, study: AccuracyStudy, seed: int) -> None:
        self._study, self.seed = study, seed
        self._found: dict[str, Found] = {}

    @cached_property
    def _trained(self) -> tuple[QNet, float]:
        study = self._study
        name = f"{study.plan.name}-{study.plan.pictures.task}-{study.float_epochs:g}-{self.seed}.pt"
        path = study.work / name.replace(":", "-")
        schedule = float_schedule(study.plan.pictures.task, study.float_epochs)
        start = path if path.exists() else None
        return pretrain(study.plan, Bits(), schedule, self.seed, start, path, study.tell)

    @property
    def net(self) -> QNet:
        """The network; copy it before it is changed."""
        return self._trained[0]

    @property
    def accuracy(self) -> float:
        """Its accuracy in floating point."""
        return self._trained[1]

    def find(self, rival: str) -> Found:
        """The widths that a search finds beside the rival; searched only once."""
        if rival not in self._found:
            self._found[rival] = self._search(rival)
        return self._found[rival]

    def _search(self, rival: str) -> Found:
        """The searched widths that cost at most what the rival costs, activations not narrower than its.

        Training wins back what weights lose by rounding, but hardly what activations lose.
        """
        study, floor = self._study, read_bits(rival).activation
        activations = tuple(width for width in study.activations if width >= floor)
        space = space_for(study.plan, rival, study.weights, activations)
        drawn = partial(drafted, self.net, study.plan.draw, study.plan.pictures)
        return search(space, self._omega, picture_bytes, picture_bytes(drawn(read_bits(rival))), drawn)

    @cached_property
    def _omega(self) -> Omega:
        study = self._study
        space = space_for(study.plan, study.rivals[0], study.weights, study.activations)
        pictures = study.plan.pictures
        return measure(study.measure)(self.net, pictures.x[:SENSED], pictures.y[:SENSED], space.asked)


def space_for(plan: TrainingPlan, base: str, weights: tuple[int, ...], activations: tuple[int, ...]) -> Space:
    """What a search may choose around base widths."""
    return Space(plan.draw, read_bits(base), weights, activations)


@dataclass(frozen=True)
class ParetoPoint:
    """The runs of one kind beside one rival: bytes and accuracies, by seed."""

    kind: str
    rival: str
    num_bytes: float
    accuracies: dict[int, float]

    @property
    def accuracy(self) -> float:
        """The mean over seeds."""
        return mean(self.accuracies.values())

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return stdev(self.accuracies.values()) if len(self.accuracies) > 1 else 0.0


def same_training(rows: Sequence[Row], epochs: float, float_epochs: float, measure: str) -> list[Row]:
    """Of recorded runs those of equal training, searches by one measure; of two of a kind the newer."""
    newest = {
        tuple(row[name] for name in ("task", "net", "rival", "kind", "seed")): row
        for row in rows
        if (row["epochs"], row["float_epochs"]) == (epochs, float_epochs)
        and row.get("measure", measure) == measure
    }
    return list(newest.values())


def pareto_points(rows: Sequence[Row], task: str, net: str) -> list[ParetoPoint]:
    """The points of a task and network, cheapest rival first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if (row["task"], row["net"]) == (task, net):
            found.setdefault((row["rival"], row["kind"]), []).append(row)
    if not found:
        raise LabError(f"no run of {net} on {task} is recorded: run `thinwire private pareto {task}` first")
    made = [
        ParetoPoint(
            kind, rival, mean(row["bytes"] for row in own), {row["seed"]: row["accuracy"] for row in own}
        )
        for (rival, kind), own in found.items()
    ]
    prices = {point.rival: point.num_bytes for point in made if point.kind == "uniform"}
    return sorted(made, key=lambda point: (prices.get(point.rival, point.num_bytes), point.kind == "search"))


def pareto_table(found: Sequence[ParetoPoint]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: one line per rival width and kind."""
    heads = ["widths", "kind", "MB per picture", "accuracy %", "seeds"]
    rows = [
        [
            point.rival,
            point.kind,
            f"{point.num_bytes / 1e6:.2f}",
            f"{100 * point.accuracy:.2f}" + (f" ± {100 * point.deviation:.2f}" if point.deviation else ""),
            str(len(point.accuracies)),
        ]
        for point in found
    ]
    return heads, rows


def pareto_verdict(found: Sequence[ParetoPoint]) -> str:
    """What the comparison says, seed by seed, at the bytes of each rival."""
    by_kind = {(point.rival, point.kind): point for point in found}
    sentences = []
    for rival in dict.fromkeys(point.rival for point in found):
        ours, theirs = by_kind.get((rival, "search")), by_kind.get((rival, "uniform"))
        if ours is None or theirs is None:
            continue
        seeds = sorted(ours.accuracies.keys() & theirs.accuracies.keys())
        gains = [100 * (ours.accuracies[seed] - theirs.accuracies[seed]) for seed in seeds]
        won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        sentences.append(
            f"at the bytes of {rival} the search is {mean(gains):+.2f} points beside it "
            f"(better on {won}, worse on {lost} of {len(gains)} seeds)"
        )
    return "; ".join(sentences)


def pareto_picture(found: Sequence[ParetoPoint], title: str, path: Path) -> None:
    """Accuracy against megabytes, a line per kind through the means, a dot per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    for kind, colour in COLOURS.items():
        own = sorted((point for point in found if point.kind == kind), key=lambda point: point.num_bytes)
        if not own:
            continue
        x = [point.num_bytes / 1e6 for point in own]
        axes.plot(x, [100 * point.accuracy for point in own], "o-", color=colour, label=NAMES[kind])
        for index, (place, point) in enumerate(zip(x, own, strict=True)):
            heights = [100 * value for value in point.accuracies.values()]
            axes.plot([place] * len(heights), heights, "_", color=colour, alpha=0.6, markersize=9)
            if kind == "uniform":
                at = (place, 100 * point.accuracy)
                offset = (4, -13) if index % 2 else (4, 7)  # neighbours' names do not meet
                axes.annotate(point.rival, at, offset, textcoords="offset points", fontsize=8, color=colour)
    axes.set_xlabel("MB per private picture (both directions, set-up not counted)")
    axes.set_ylabel("test accuracy in %")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(color="#eef0f3")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
