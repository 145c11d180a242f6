"""A lane's numbers: what its packer sees of the gradients, how they are made and how they are undone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.exchange.feedback import Feedback
from thinwire.plans.lane import Lane
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Piece
from thinwire.tensors.scratch import Scratch


@dataclass(frozen=True)
class Load:
    """A lane of a bucket in one step: its gradients, and all that the engine knows of the step."""

    lane: Lane
    x: Tensor  # the gradients; at the end their mean
    index: int  # of the lane in its bucket: lanes have buffers of their own
    feedback: Feedback
    key: Key
    scratch: Scratch
    watched: bool  # whether anybody wants to know if the mean is finite

    @property
    def feeds_numbers(self) -> bool:
        """What is held back joins the numbers if the stages never change (or there are none), else x."""
        return self.lane.bound.fixed

    def take(self, name: str, numel: int) -> Tensor:
        return self.scratch.take(name, 4 * numel).view(torch.float32)


class PartNumbers(ABC):
    """The numbers of one part, in a buffer that may hold others too: `pieces` says where they lie."""

    tensor: Tensor
    pieces: tuple[Piece, ...]

    @abstractmethod
    def make(self) -> None:
        """Fills them, with what was held back of them."""

    @abstractmethod
    def undo(self) -> None:
        """Decoded numbers to gradients, now or when all parts are there."""

    @abstractmethod
    def own(self, payload: Tensor, agreed: Tensor) -> tuple[Tensor, int]:
        """What a payload stands for, and the element of `tensor` at which that begins."""

    @abstractmethod
    def add_own_gradients(self, payload: Tensor, agreed: Tensor, own: Tensor) -> None:
        """Writes what a payload stands for into the gradients `own`, at the latest with the last part."""


class Numbers(ABC):
    """The numbers of a lane. Made all at once (`whole.py`), or part by part (`partwise.py`)."""

    @abstractmethod
    def summands(self, depth: int) -> Tensor:
        """What stage number `depth` adds up over all ranks before it runs."""

    @abstractmethod
    def transform(self, depth: int, agreed: Tensor) -> None:
        """Runs stage number `depth`."""

    @abstractmethod
    def maxima(self) -> Tensor:
        """The words of which all ranks take the maximum before encoding."""

    @abstractmethod
    def parts(self) -> Sequence[PartNumbers]:
        """Those of every part of the lane."""

    @abstractmethod
    def finish(self) -> None:
        """All parts are decoded: x becomes the mean."""

    @abstractmethod
    def learn(self, mean: Tensor) -> None:
        """Shows the mean to the stages."""
