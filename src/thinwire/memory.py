"""Memories: what a rank holds back from one step to the next (error feedback)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.errors import PlanError
from thinwire.spec import Layout


class Memory(ABC):
    """Invariant, tensor by tensor: in + old = sent + new. `after` stages, `commit` makes it true."""

    @abstractmethod
    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        """Adds what was held back to the tensors of x, in place. `unit` is the loss scale of x."""

    @abstractmethod
    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        """Stages x - own: what was meant to be sent less what was sent."""

    @abstractmethod
    def commit(self, names: tuple[str, ...]) -> None:
        """Believes what was staged for these tensors; staged values of others are dropped."""

    @abstractmethod
    def state(self) -> dict[str, Tensor]:
        """What is held back, by tensor name."""

    @abstractmethod
    def load(self, state: Mapping[str, Tensor]) -> None:
        """Puts back what `state` gave."""


class NoMemory(Memory):
    """Holds nothing back: right for unbiased codecs, whose errors average out."""

    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        pass

    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        pass

    def commit(self, names: tuple[str, ...]) -> None:
        pass

    def state(self) -> dict[str, Tensor]:
        return {}

    def load(self, state: Mapping[str, Tensor]) -> None:
        pass


class Residual(Memory):
    """Error feedback: p = g + e; send Q(p); e = p - Q(p).

    Kept in unscaled units, so that a GradScaler may change the loss scale between steps.
    """

    def __init__(self) -> None:
        self.kept: dict[str, Tensor] = {}
        self.staged: dict[str, Tensor] = {}

    def before(self, x: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            if name in self.kept:
                x[piece].add_(self.kept[name], alpha=unit)

    def after(self, x: Tensor, own: Tensor, layout: Layout, unit: float) -> None:
        for name, piece in zip(layout.names, layout.slices, strict=True):
            target = self.staged.get(name)
            if target is None or target.numel() != piece.stop - piece.start:
                target = self.staged[name] = torch.empty_like(x[piece])
            torch.sub(x[piece], own[piece], out=target)
            if unit != 1.0:
                target.div_(unit)

    def commit(self, names: tuple[str, ...]) -> None:
        for name in names:  # swap: the old buffer is written to in the next step
            old = self.kept.get(name)
            self.kept[name] = self.staged.pop(name)
            if old is not None:
                self.staged[name] = old

    def state(self) -> dict[str, Tensor]:
        return {name: kept.clone() for name, kept in self.kept.items()}

    def load(self, state: Mapping[str, Tensor]) -> None:
        self.kept = {name: kept.clone() for name, kept in state.items()}
        self.staged = {}


MEMORIES: Mapping[str, type[Memory]] = MappingProxyType({"none": NoMemory, "residual": Residual})


def make_memory(name: str) -> Memory:
    if name not in MEMORIES:
        raise PlanError(f'there is no memory "{name}": known are {", ".join(MEMORIES)}')
    return MEMORIES[name]()
