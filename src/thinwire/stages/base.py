"""What a stage is (options only) and what it becomes once bound to a lane."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor

from thinwire.coders.base import Place
from thinwire.spec import Layout


class Stage(ABC):
    """A link before the coder: float32 numbers to float32 numbers. Frozen options, no data."""

    per_rank: ClassVar[bool] = False  # True: decoding needs something only this rank's payload carries

    @abstractmethod
    def bind(self, layout: Layout, place: Place) -> BoundStage:
        """Makes the tables for one lane."""


class BoundStage(ABC):
    """A stage bound to the tensors of a lane; `out` says how its results lie."""

    out: Layout

    @abstractmethod
    def forward(self, x: Tensor) -> Tensor:
        """The numbers the next link sees, laid out as `out`. Must not change x."""

    @abstractmethod
    def inverse(self, y: Tensor, x: Tensor) -> None:
        """Writes the numbers y stands for into the tensors of x. Linear, so that it may run once, on a sum."""
