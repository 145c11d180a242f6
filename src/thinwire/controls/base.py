"""What a control is: how strong a codec is over time, decided alike on all ranks from the same numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Generic, TypeVar


@dataclass(frozen=True)
class Seen:
    """What all ranks observed since the last step, the same numbers on every rank; None: nobody said it."""

    loss: float | None = None  # the mean over the ranks
    lr: float | None = None
    epoch: float | None = None
    reference: float | None = None  # the mean over the ranks


@dataclass(frozen=True)
class ControlState:
    """The state of a control: plain numbers, the same on all ranks. `strength` multiplies a codec's theta."""

    strength: float = 1.0


@dataclass(frozen=True)
class Change:
    """One change of strength: from this step on, and why."""

    step: int
    strength: float
    why: str


S = TypeVar("S", bound=ControlState)


class Control(ABC, Generic[S]):
    """Frozen options. `decide` is pure: the old state and what was seen give the new state.

    A strength of 1 is the codec as it was asked for, 0 is the gentlest there is: top-k keeps everything, qsgd
    takes 8 bits. `theta` is the part that the codec drops at strength 1, None if it drops nothing.
    """

    needs: ClassVar[str | None] = None  # what observe() must tell it; None: it listens to nothing

    def check(self, theta: float | None) -> None:
        """Refuses a codec it cannot work with."""

    @abstractmethod
    def begin(self, theta: float | None) -> S:
        """The state before the first step."""

    @abstractmethod
    def decide(self, state: S, seen: Seen, step: int, theta: float | None) -> tuple[S, str]:
        """The state for a step, and why the strength changed if it did."""
