"""A cell of the grid: a model, a rate and a number of workers; what is run in it, and its record."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

AUTO = "auto"  # tw.compress(model, "auto"), trained until it has decided
AUTO_QUALITY = "aggressive"  # what it may take there: all that can be measured
BASE, AGAIN = "ddp", "ddp-again"  # plain DDP, twice: their difference is what chance does
CODECS = ("fp16", "terngrad", "qsgd:4", "gradiveq:8", "topk:0.01")

Record = dict[str, Any]


@dataclass(frozen=True)
class Cell:
    """Where something is measured; `rate` None: a link that nobody shapes. `busy`: beside two loops."""

    model: str
    rate: str | None
    workers: int
    busy: bool = False

    @property
    def name(self) -> str:
        beside = ", busy" if self.busy else ""
        return f"{self.model}, {self.rate or 'unshaped'}, {self.workers} workers{beside}"

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Cell:
        return cls(record["model"], record["rate"], record["workers"], record.get("busy", False))


@dataclass(frozen=True)
class CellJob:
    """What the workers of a cell are told."""

    model: str
    rate: str | None
    workers: int
    codecs: tuple[str, ...]
    others: tuple[str, ...]  # hooks that are timed and not forecast
    batch: int
    seconds: float  # for timing, about
    min_repeats: int
    max_repeats: int
    probe_s: float

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> CellJob:
        lists = {name: tuple(values[name]) for name in ("codecs", "others")}
        return cls(**{**values, **lists})


def cells(models: Sequence[str], rates: Sequence[str | None], workers: Sequence[int]) -> list[Cell]:
    """The grid, its quick cells first: fast links before slow ones, few workers before many."""
    return [
        Cell(model, rate, count)
        for count in workers
        for rate in reversed(rates)
        for model in reversed(models)
    ]
