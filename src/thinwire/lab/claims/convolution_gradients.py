"""How linear the gradients of convolutions are: what a basis learnt on some slices captures of others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.lab.claims.rounded import rounded
from thinwire.lab.claims.run import Result, Run
from thinwire.lab.claims.study import Study, Tell
from thinwire.lab.claims.training import settings_of
from thinwire.lab.data import load_task
from thinwire.lab.run.recipe import Recipe, recipe_from_dict
from thinwire.lab.run.trainer import Trainer

KIND = "convolution gradients"
SLICE = 256
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # d / M
PAPER_SHARE = 1 / 8
MIN_SLICES = 64
SPECTRUM_POINTS = 64


@dataclass(frozen=True)
class ConvolutionGradients(Study):
    """One training without compression, by the gradient of the whole batch: what workers' sum would be.

    1. `learn` steps from step `begin` on: every slice of a layer is a sample, PCA gives its basis
    2. the gradients of `ages` steps later are projected: time;  slices that were left out, too: space
    3. the basis of shuffled slices, which have the same numbers and no neighbours, for comparison
    """

    recipe: Recipe
    begin: int
    learn: int
    ages: tuple[int, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        how = {"begin": self.begin, "learn": self.learn, "ages": list(self.ages), "slice": SLICE}
        return [Run(KIND, {**settings_of(self.recipe), **how}, seed)]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)
        settings = dict(run.settings)
        begin, learn, ages, _ = (settings.pop(name) for name in ("begin", "learn", "ages", "slice"))
        recipe = recipe_from_dict({**settings, "seed": run.seed})
        trainer = Trainer(recipe, load_task(recipe.task, data))
        names = convolutions(trainer.net)
        learning: dict[str, list[Tensor]] = {name: [] for name in names}
        later: dict[str, dict[int, Tensor]] = {name: {} for name in names}
        steps = begin + learn + max(ages)
        for step, indices in enumerate(trainer.order.batches(0, 0, steps)):
            trainer.backward(indices)
            age = step - begin - learn + 1
            for name, parameter in trainer.net.named_parameters():
                if name in names and parameter.grad is not None:
                    if begin <= step < begin + learn:
                        learning[name].append(slices(parameter.grad))
                    if age in ages:
                        later[name][age] = slices(parameter.grad)
            trainer.update()
            tell("", step + 1, steps)
        generator = torch.Generator().manual_seed(run.seed)
        return {"layers": {name: look(learning[name], later[name], generator) for name in names}}


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


def look(learning: Sequence[Tensor], later: dict[int, Tensor], generator: torch.Generator) -> dict[str, Any]:
    """One layer: its spectrum, and captured energies in time, in space and without neighbours."""
    samples = torch.cat(list(learning))
    mean, basis, energies = principal(samples)
    even = principal(torch.cat([x[0::2] for x in learning]))
    odd = torch.cat([x[1::2] for x in learning])
    shuffled = samples.flatten()[torch.randperm(samples.numel(), generator=generator)].view_as(samples)
    return {
        "slices": len(samples),
        "spectrum": [rounded(float(e)) for e in (energies / energies.sum())[:SPECTRUM_POINTS]],
        "by_age": {str(age): captured(x, mean, basis) for age, x in later.items()},
        "other_slices": captured(odd, even[0], even[1]),
        "shuffled": captured(shuffled[1::2], *principal(shuffled[0::2])[:2]),
    }


def principal(samples: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Mean, eigenvectors as columns and eigenvalues of the covariance, the largest first."""
    x = samples.double()
    mean = x.mean(0)
    values, vectors = torch.linalg.eigh((x - mean).T @ (x - mean) / len(x))
    return mean, vectors.flip(1), values.flip(0).clamp(min=0)


def captured(samples: Tensor, mean: Tensor, basis: Tensor) -> dict[str, float]:
    """By d / M: the share of the energy of slices that U_d (U_d^T (g - mu)) + mu keeps.

    1 - |g - ghat|^2 / |g|^2, which is 1 where the codec loses nothing.
    """
    x = samples.double()
    energy = float(x.square().sum())
    parts = ((x - mean) @ basis).square().sum(0).cumsum(0)
    lost = float((x - mean).square().sum()) - parts
    return {f"{share:g}": rounded(1 - float(lost[round(share * SLICE) - 1]) / energy) for share in SHARES}
