"""Study: accuracy against bytes, bit widths found by the search beside uniform ones of equal bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from thinwire_lab.private.record import Records
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, Node, Requant
from thinwire_private.net.twq import Model, write_twq
from thinwire_private.net.widths import Bits, bits_from_facts, bits_to_facts, read_bits, settled
from thinwire_private.net.zoo import ZOO, build
from thinwire_private.train.fit import float_schedule, grid_schedule
from thinwire_private.train.qnet import QNet
from thinwire_private.train.run import Plan, Tell, drafted, pretrain, tune
from thinwire_private.train.search import Found, Space, picture_bytes, search
from thinwire_private.train.sensitivity import Omega, measure

Row = dict[str, Any]


def shifts_of(graph: Graph) -> dict[str, Any]:
    """The trained shifts: with the bits, all that the bytes of a network of the zoo depend on."""
    shifts: dict[str, Any] = {node.name: node.shift for node in graph.of(Requant)}
    return shifts | {node.name: list(node.shifts) for node in graph.of(Add)}


def priced(row: Row) -> Row:
    """A recorded run with its bytes under the protocols of today; of networks outside the zoo as recorded."""
    if row["net"] not in ZOO:
        return row
    graph = build(row["net"], bits_from_facts(row["bits"]))

    def shifted(node: Node) -> Node:
        match node:
            case Requant():
                return replace(node, shift=row["shifts"][node.name])
            case Add():
                first, second = row["shifts"][node.name]
                return replace(node, shifts=(first, second))
            case _:
                return node

    nodes = settled([shifted(node) for node in graph])
    return {**row, "bytes": picture_bytes(replace(graph, nodes=nodes))}


RECORDS = Records("accuracy")
SENSED = 512  # training pictures that sensitivities are measured on


@dataclass(frozen=True)
class Study:
    """One network on one task: for every rival width and seed a uniform run and a searched one.

    The budget of a search is what its rival costs. `one_float`: all seeds tune the floating-point network of
    seed 0; else every seed trains its own.
    """

    plan: Plan
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
    records: Records = RECORDS
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
            write_twq(self.models / name, Model(result.graph, facts))
        return {
            **result.row(),
            "bytes": picture_bytes(result.graph),
            "bits": bits_to_facts(bits),
            "shifts": shifts_of(result.graph),
        }


class _Start:
    """A floating-point network, trained or read when it is first needed, and what was measured on it."""

    def __init__(self, study: Study, seed: int) -> None:
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


def space_for(plan: Plan, base: str, weights: tuple[int, ...], activations: tuple[int, ...]) -> Space:
    """What a search may choose around base widths."""
    return Space(plan.draw, read_bits(base), weights, activations)
