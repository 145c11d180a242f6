"""How linear the gradients of convolutions are: what a basis learnt on some slices captures of others."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinwire_lab.claims.rounded import rounded
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.studies.training import settings_of
from thinwire_lab.claims.study import Study, Tell
from thinwire_lab.data import load_task
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.trainer import Trainer

KIND = "convolution gradients"
SLICE = 256
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # d / M
PAPER_SHARE = 1 / 8
MIN_SLICES = 64
SPECTRUM_POINTS = 64
TESTED = 5  # gradients at every age: one batch alone says little


@dataclass(frozen=True)
class Basis:
    """The mean and the directions of some slices, the strongest first."""

    mean: Tensor
    directions: Tensor  # as columns
    energies: Tensor

    @classmethod
    def of(cls, samples: Tensor) -> Basis:
        """The eigenvectors of the covariance."""
        x = samples.double()
        mean = x.mean(0)
        values, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / len(x))
        return cls(mean, vectors.flip(1), values.flip(0).clamp(min=0))

    def captured(self, samples: Tensor) -> dict[str, float]:
        """By d / M: the share of the energy of slices that U_d (U_d^T (g - mu)) + mu keeps.

        1 - |g - ghat|^2 / |g|^2, which is 1 where the codec loses nothing.
        """
        x = samples.double()
        parts = ((x - self.mean) @ self.directions).square().sum(0).cumsum(0)
        lost = ((x - self.mean).square().sum() - parts) / x.square().sum()
        return {f"{share:g}": rounded(1 - float(lost[round(share * SLICE) - 1])) for share in SHARES}


class Layer:
    """The slices of one layer as training goes on: a window to learn from, and what comes later."""

    def __init__(self, learn: int) -> None:
        self.window: deque[Tensor] = deque(maxlen=learn)
        self.learnt: list[Tensor] = []  # what the basis under test was learnt from
        self.fresh: dict[int, Basis] = {}  # by age: of the window right before
        self.later: dict[int, list[Tensor]] = {}

    def see(self, gradient: Tensor, age: int, ages: Sequence[int]) -> None:
        """The gradient of the next step; `age` counts from the end of learning, 1 is the first step after."""
        if age == 1:
            self.learnt = list(self.window)
        if age in ages:
            self.fresh[age] = Basis.of(torch.cat(list(self.window)))
        for begin in ages:
            if begin <= age < begin + TESTED:
                self.later.setdefault(begin, []).append(gradient)
        self.window.append(gradient)

    def result(self, generator: torch.Generator) -> dict[str, Any]:
        """Its spectrum, and captured energies in time, in space and without neighbours."""
        samples = torch.cat(self.learnt)
        basis, later = Basis.of(samples), {age: torch.cat(own) for age, own in self.later.items()}
        half = Basis.of(torch.cat([x[0::2] for x in self.learnt]))
        others = {age: torch.cat([x[1::2] for x in own]) for age, own in self.later.items()}
        shuffled = samples.flatten()[torch.randperm(samples.numel(), generator=generator)].view_as(samples)
        first = min(later)
        return {
            "slices": len(samples),
            "spectrum": [
                rounded(float(e)) for e in (basis.energies / basis.energies.sum())[:SPECTRUM_POINTS]
            ],
            "by_age": {str(age): basis.captured(x) for age, x in later.items()},
            "fresh_by_age": {str(age): self.fresh[age].captured(x) for age, x in later.items()},
            "other_slices": half.captured(others[first]),
            "same_slices": basis.captured(others[first]),
            "shuffled": Basis.of(shuffled[0::2]).captured(shuffled[1::2]),
        }


@dataclass(frozen=True)
class ConvolutionGradients(Study):
    """One training without compression, by the gradient of the whole batch: what workers' sum would be.

    1. `learn` steps from step `begin` on: every slice of a layer is a sample, PCA gives its basis
    2. time: the gradients of five steps from each age on are projected, on it and on a basis of
       the steps right before
    3. space: a basis of every other slice, on those that were left out
    4. the basis of shuffled slices, which have the same numbers and no neighbours, for comparison
    """

    recipe: Recipe
    begin: int
    learn: int
    ages: tuple[int, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        how = {"begin": self.begin, "learn": self.learn, "ages": list(self.ages)}
        return [Run(KIND, {**settings_of(self.recipe), **how, "slice": SLICE, "tested": TESTED}, seed)]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)
        settings = {
            k: v for k, v in run.settings.items() if k not in ("begin", "learn", "ages", "slice", "tested")
        }
        recipe = recipe_from_dict({**settings, "seed": run.seed})
        trainer = Trainer(recipe, load_task(recipe.task, data))
        layers = {name: Layer(self.learn) for name in convolutions(trainer.net)}
        steps = self.begin + self.learn + max(self.ages) + TESTED - 1
        for step, indices in enumerate(trainer.order.batches(0, 0, steps)):
            trainer.backward(indices)
            age = step - self.begin - self.learn + 1
            for name, parameter in trainer.net.named_parameters():
                if name in layers and parameter.grad is not None:
                    layers[name].see(slices(parameter.grad), age, self.ages)
            trainer.update()
            tell("", step + 1, steps)
        generator = torch.Generator().manual_seed(run.seed)
        return {"layers": {name: layer.result(generator) for name, layer in layers.items()}}


def convolutions(net: nn.Module) -> list[str]:
    """The weights of convolutions with slices enough to learn from."""
    return [
        f"{name}.weight"
        for name, layer in net.named_modules()
        if isinstance(layer, nn.Conv2d) and layer.weight.numel() >= MIN_SLICES * SLICE
    ]


def slices(gradient: Tensor) -> Tensor:
    """Neighbours in memory, `SLICE` at a time; the tail is left out."""
    flat = gradient.detach().contiguous().flatten()
    return flat[: flat.numel() // SLICE * SLICE].view(-1, SLICE).clone()
