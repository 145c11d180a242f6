"""A schedule: the compression level over time, decided alike on all ranks from the same observations."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar

import torch
from torch import Tensor

from thinwire.errors import PlanError


@dataclass(frozen=True)
class Seen:
    """What all ranks observed since the last step, the same numbers on every rank; None: nobody said it."""

    loss: float | None = None  # the mean over the ranks
    lr: float | None = None
    epoch: float | None = None
    reference: float | None = None  # the mean over the ranks


@dataclass(frozen=True)
class ScheduleState:
    """The state of a schedule: plain values, the same on all ranks. The level multiplies a codec's theta."""

    compression_level: float = 1.0


@dataclass(frozen=True)
class Change:
    """One change of the compression level: from this step on, and why."""

    step: int
    compression_level: float
    why: str


S = TypeVar("S", bound=ScheduleState)


class Schedule(ABC, Generic[S]):
    """Frozen options. `decide` is pure: the old state and what was seen give the new state.

    Compression level 1 is the codec as it was asked for, 0 compresses least: top-k keeps everything, qsgd
    takes 8 bits. `theta` is the part that the codec drops at level 1, None if it drops nothing.
    """

    needs: ClassVar[str | None] = None  # what observe() must tell it; None: it listens to nothing

    def check(self, theta: float | None) -> None:
        """Refuses a codec it cannot work with."""

    @abstractmethod
    def begin(self, theta: float | None) -> S:
        """The state before the first step."""

    @abstractmethod
    def decide(self, state: S, seen: Seen, step: int, theta: float | None) -> tuple[S, str]:
        """The state for a step, and why the compression level changed if it did."""


RECORD_BYTES = 48  # six float64 numbers
_TOLD = ("lr", "epoch", "reference")
WAY_OUT = "call compressor.observe on every rank, equally often between two steps"


@dataclass(frozen=True)
class Observation:
    """All calls of observe() on one rank since the last step: losses add up, of the rest the last one counts.

    >>> Observation.of(loss=2.0).plus(Observation.of(loss=4.0, lr=0.1))
    Observation(calls=2, losses=2, loss=6.0, lr=0.1, epoch=None, reference=None)
    """

    calls: float = 0
    losses: float = 0
    loss: float = 0.0
    lr: float | None = None
    epoch: float | None = None
    reference: float | None = None

    @classmethod
    def of(
        cls,
        loss: float | Tensor | None = None,
        lr: float | None = None,
        epoch: float | None = None,
        reference: float | Tensor | None = None,
    ) -> Observation:
        """One call. The loss may be any number, NaN too; everything else must be finite."""
        value = 0.0 if loss is None else _number("loss", loss)
        told = {"lr": lr, "epoch": epoch, "reference": reference}
        values = {name: None if given is None else _number(name, given) for name, given in told.items()}
        for name, number in values.items():
            if number is not None and not math.isfinite(number):
                raise PlanError(f"observe: {name}={number} must be a finite number; leave it out if unknown")
        return cls(1, int(loss is not None), value, **values)

    def plus(self, later: Observation) -> Observation:
        rest = {name: getattr(self if getattr(later, name) is None else later, name) for name in _TOLD}
        return Observation(
            self.calls + later.calls, self.losses + later.losses, self.loss + later.loss, **rest
        )

    def record(self) -> Tensor:
        """The RECORD_BYTES bytes that travel; NaN stands for what was not told."""
        values = [math.nan if value is None else value for value in dataclasses.astuple(self)]
        return torch.tensor(values, dtype=torch.float64).view(torch.uint8)


def read_records(records: Tensor) -> list[Observation]:
    """The observations of all ranks, from (ranks, RECORD_BYTES) bytes."""
    rows = records.cpu().contiguous().view(torch.float64).tolist()
    return [
        Observation(*row[:3], *(None if math.isnan(value) else value for value in row[3:])) for row in rows
    ]


def agree(observations: Sequence[Observation], name: Callable[[int], int], needs: str | None = None) -> Seen:
    """What all ranks saw, from the same numbers in rank order; raises on all ranks alike if they disagree.

    1. every rank must have called observe() equally often, and told the same things
    2. learning rate and epoch must be equal; of losses and references the mean over the ranks counts
    """
    _same_calls([int(seen.calls) for seen in observations], name)
    first = observations[0]
    if not first.calls:
        return Seen()
    _same_loss_count(observations, name)
    for what in _TOLD:
        _same_told(what, [getattr(seen, what) for seen in observations], name)
    losses = [seen.loss / seen.losses for seen in observations if seen.losses]
    references = [seen.reference for seen in observations if seen.reference is not None]
    seen = Seen(_mean(losses), first.lr, first.epoch, _mean(references))
    if needs is not None and getattr(seen, needs) is None:
        raise PlanError(
            f"observe was called without what the schedule needs: call observe({argument(needs)})"
        )
    return seen


def merged(observations: Sequence[Observation], name: Callable[[int], int]) -> Observation:
    """One observation that, made by every rank of any world, stands for all of these."""
    seen, calls = agree(observations, name), observations[0].calls
    losses = 0 if seen.loss is None else observations[0].losses
    return Observation(calls, losses, losses * (seen.loss or 0.0), seen.lr, seen.epoch, seen.reference)


def argument(needs: str | None) -> str:
    """How a script writes what a schedule needs."""
    return "loss" if needs == "loss" else f"{needs}=..."


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _same_calls(calls: Sequence[int], name: Callable[[int], int]) -> None:
    if len(set(calls)) == 1:
        return
    silent = [rank for rank, count in enumerate(calls) if not count]
    called = [
        f"{_ranks(ranks, name)} called it {'once' if count == 1 else f'{count} times'}"
        for count in sorted(set(calls) - {0})
        for ranks in [[rank for rank, mine in enumerate(calls) if mine == count]]
    ]
    never = [f"{_ranks(silent, name)} did not"] if silent else []
    kind = "was called on some ranks only" if silent else "was called more often on some ranks"
    raise PlanError(f"observe {kind}: since the last step {', '.join(called + never)}; {WAY_OUT}")


def _same_loss_count(observations: Sequence[Observation], name: Callable[[int], int]) -> None:
    with_loss = [rank for rank, seen in enumerate(observations) if seen.losses]
    without = [rank for rank, seen in enumerate(observations) if not seen.losses]
    if with_loss and without:
        raise PlanError(
            f"observe was told a loss by {_ranks(with_loss, name)} but not by {_ranks(without, name)}; "
            "tell the same things on every rank"
        )


def _same_told(what: str, values: Sequence[float | None], name: Callable[[int], int]) -> None:
    missing = [rank for rank, value in enumerate(values) if value is None]
    if missing and len(missing) < len(values):
        there = [rank for rank in range(len(values)) if rank not in missing]
        raise PlanError(
            f"observe was told {what} by {_ranks(there, name)} but not by {_ranks(missing, name)}; "
            "tell the same things on every rank"
        )
    differing = [rank for rank, value in enumerate(values) if value != values[0]]
    if differing and what != "reference":
        other = differing[0]
        raise PlanError(
            f"observe was told different values of {what}: {values[0]} by rank {name(0)}, {values[other]} by "
            f"rank {name(other)}; it must be equal on all ranks"
        )


def _ranks(ranks: Sequence[int], name: Callable[[int], int]) -> str:
    return "rank " + ", ".join(str(name(rank)) for rank in ranks)


def _number(what: str, value: float | Tensor) -> float:
    try:
        return float(value.detach() if isinstance(value, Tensor) else value)
    except (TypeError, ValueError, RuntimeError):
        raise PlanError(
            f"observe: {what} must be one number or a tensor of one element, not {type(value).__name__}"
            + (f" of shape {list(value.shape)}" if isinstance(value, Tensor) else "")
        ) from None
