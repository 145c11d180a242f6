"""A snapshot: the gradient of one training step, and the gradients of the steps before it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from thinwire.tensors.layout import Layout


@dataclass(frozen=True)
class Snapshot:
    """The tensors that the default policy compresses, end to end, as they were in one step.

    `before` holds the same tensors in the steps right before it, oldest first, for codecs that learn.
    """

    subject: str
    moment: str  # early, middle or late
    step: int  # counted from 1
    num_steps: int
    loss: float  # mean over the steps kept
    layout: Layout
    gradient: Tensor = field(repr=False)
    before: tuple[Tensor, ...] = field(repr=False)
    dense_names: tuple[str, ...]  # tensors of the model that stay dense and are not looked at

    @property
    def name(self) -> str:
        return f"{self.subject}, {self.moment}"

    @property
    def numel(self) -> int:
        return self.layout.numel

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat buffer as its tensors, each flattened in the order of memory."""
        return {name: flat[piece] for name, piece in zip(self.layout.names, self.layout.slices, strict=True)}


def relative_error(x: Tensor, decoded: Tensor) -> float:
    """|x - decoded| / |x|; 0 for zeros sent as zeros."""
    energy, error = float(x.double().norm()), float((x.double() - decoded.double()).norm())
    return error / energy if energy > 0 else error
