"""What TernGrad makes of gradients while a net is trained by it: histograms, zeros, what clipping costs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinwire_lab.claims.rounded import rounded
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.studies.training import settings_of
from thinwire_lab.claims.study import Study, Tell
from thinwire_lab.data import load_task
from thinwire_lab.run.gradient_histograms import histogram
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.replicas import trained
from thinwire_lab.run.virtual_trainer import VirtualTrainer
from thinwire_lab.study.recording import compressed_tensors

KIND = "ternary gradients"
CLIP = 2.5
LIMIT = 4.0  # of the histograms, in standard deviations of the raw gradient
MOMENTS = {"early": 0.05, "middle": 0.5, "late": 1.0}


class WatchedTrainer(VirtualTrainer):
    """Keeps worker 0's gradient and the mean that came back, of the last step."""

    def _send(self, rank: int, loss: float, flat: Tensor) -> None:
        if rank == 0:
            self.own = flat.clone()
        super()._send(rank, loss, flat)

    def _give(self, means: Tensor) -> None:
        self.mean = means.clone()
        super()._give(means)

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """By name: those that are sent as trits."""
        names = {parameter: name for name, parameter in self.net.named_parameters()}
        parameters = trained(self.net)
        pieces = torch.split(flat, [parameter.numel() for parameter in parameters])
        layout, _ = compressed_tensors(self.net)
        by_name = {names[p]: piece for p, piece in zip(parameters, pieces, strict=True)}
        return {name: piece for name, piece in by_name.items() if name in layout.names}


@dataclass(frozen=True)
class TernaryGradients(Study):
    """One training by a recipe whose codec is terngrad; `layers` are looked at closely."""

    recipe: Recipe
    layers: tuple[str, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        return [Run(KIND, {**settings_of(self.recipe), "layers": list(self.layers)}, seed)]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        settings = {name: value for name, value in run.settings.items() if name != "layers"}
        recipe = recipe_from_dict({**settings, "seed": run.seed})
        torch.set_num_threads(1)
        trainer = WatchedTrainer(recipe, load_task(recipe.task, data))
        moments = {math.ceil(share * trainer.num_steps): name for name, share in MOMENTS.items()}
        generator = torch.Generator().manual_seed(run.seed)
        found = []
        try:
            for step, loss in enumerate(trainer.steps(0, trainer.num_steps), 1):
                tell("", step, trainer.num_steps)
                if step in moments:
                    own, mean = trainer.tensors(trainer.own), trainer.tensors(trainer.mean)
                    layers = {name: look(own[name], mean[name], generator) for name in self.layers}
                    about = {"moment": moments[step], "loss": rounded(loss), "errors": errors(own)}
                    found.append({**about, "layers": layers})
        finally:
            trainer.close()
        return {"moments": found}


def look(own: Tensor, mean: Tensor, generator: torch.Generator) -> dict[str, Any]:
    """One layer of one step: a worker's gradient, clipped, ternary, and the mean of all workers."""
    sigma = float((own - own.mean()).square().mean().sqrt())
    clipped = own.clamp(-CLIP * sigma, CLIP * sigma)
    trits = ternary(clipped, generator)
    parts = {"raw": own, "clipped": clipped, "ternary": trits, "averaged": mean}
    cosine = float(own.dot(clipped) / (own.norm() * clipped.norm()))
    return {
        "histograms": {name: histogram(part, LIMIT * sigma) for name, part in parts.items()},
        "levels": {
            name: int(np.unique(part.numpy()).size)
            for name, part in parts.items()
            if name in ("ternary", "averaged")
        },
        "clipped": rounded(float((own.abs() > CLIP * sigma).float().mean())),
        "shortened": rounded(1 - float(clipped.norm() / own.norm())),
        "turned_degrees": rounded(math.degrees(math.acos(min(1.0, cosine)))),
        "zeros": rounded(float((trits == 0).float().mean())),
    }


def ternary(x: Tensor, generator: torch.Generator) -> Tensor:
    """s * sign(x) * b, b ~ Bernoulli(|x| / s), s = max|x|."""
    scale = x.abs().max()
    draws = torch.rand(x.shape, generator=generator)
    return scale * x.sign() * (draws * scale < x.abs())


def errors(tensors: Mapping[str, Tensor]) -> dict[str, float]:
    """The expected error E|Q(g) - f(g)| / |f(g)| over all layers: a scale each, or the largest for all.

    E|Q - f|^2 = s |f|_1 - |f|^2 for every tensor with scale s.
    """
    found = {}
    for name, clip in (("", CLIP), (", no clipping", math.inf)):
        clipped = [x.double().clamp(-clip * float(x.std()), clip * float(x.std())) for x in tensors.values()]
        energy = sum(float(x.square().sum()) for x in clipped)
        own = sum(float(x.abs().max() * x.abs().sum()) for x in clipped) - energy
        largest = max(float(x.abs().max()) for x in clipped)
        one = largest * sum(float(x.abs().sum()) for x in clipped) - energy
        found[f"own scales{name}"] = rounded(math.sqrt(own / energy))
        found[f"one scale{name}"] = rounded(math.sqrt(one / energy))
    return found
