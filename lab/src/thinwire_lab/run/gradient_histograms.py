"""Histograms of gradients: a rank's own as the backward pass made them, and the mean that came back."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

NUM_LAYERS = 4  # the largest
NUM_BINS = 41  # odd: the middle one holds zero
LIMIT = 4.0  # times the root mean square of a rank's own gradient; what lies outside counts in the last bin


class GradientHistograms:
    """Looks at the largest weights in the steps it was given, which count from 1; `now` tells the step."""

    def __init__(self, net: nn.Module, steps: Collection[int], now: Callable[[], int]) -> None:
        self.steps, self.now = frozenset(steps), now
        weights = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
        largest = sorted(weights, key=lambda pair: -pair[1].numel())[:NUM_LAYERS]
        self._weights = {name: p for name, p in weights if any(p is big for _, big in largest)}
        self._own: dict[str, Tensor] = {}
        for name, parameter in self._weights.items() if self.steps else ():
            parameter.register_post_accumulate_grad_hook(partial(self._note, name))  # type: ignore[no-untyped-call]

    def _note(self, name: str, parameter: Tensor) -> None:
        if self.now() in self.steps and parameter.grad is not None:
            self._own[name] = parameter.grad.detach().clone()

    def take(self) -> list[dict[str, Any]]:
        """After the step: one entry a layer; layers with numbers that are not finite are left out."""
        entries = []
        for name, own in self._own.items():
            mean = self._weights[name].grad
            limit = LIMIT * float(own.square().mean().sqrt())
            if mean is not None and 0.0 < limit < float("inf") and bool(mean.isfinite().all()):
                counts = {"own": histogram(own, limit), "mean": histogram(mean, limit)}
                entries.append({"layer": name, "limit": float(f"{limit:.4g}"), **counts})
        self._own = {}
        return entries


def histogram(x: Tensor, limit: float) -> list[int]:
    """How many numbers fall into each of the equal bins from -limit to limit.

    >>> histogram(torch.tensor([0.0, 0.01, -9.0]), limit=1.0)[0::20]
    [1, 2, 0]
    """
    inside = x.detach().float().clamp(-limit, limit)
    return [int(count) for count in torch.histc(inside, NUM_BINS, -limit, limit).tolist()]
