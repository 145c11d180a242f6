"""Studies of gradients: errors of codecs and formats, correlation in convolutions, ternary gradients."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from thinwire_lab.claims.claim import ClaimRun, ClaimStudy, Result, Tell, rounded
from thinwire_lab.claims.training_studies import settings_of
from thinwire_lab.data import load_task
from thinwire_lab.run.observers import histogram
from thinwire_lab.run.recipe import Recipe, recipe_from_dict
from thinwire_lab.run.trainer import Trainer
from thinwire_lab.run.virtual_trainer import VirtualTrainer, trained
from thinwire_lab.study.errors import TARGETS, find_errors, measure_formats
from thinwire_lab.study.methods import METHODS, Snapshot
from thinwire_lab.study.subject import compressed_tensors, read_subjects, record

COMPRESSED = "compressed gradients"
COMPARED = ("fft", "fft whole", "topk", "topk fp32", "terngrad", "qsgd", "qsgd l2")
CONVOLUTION = "convolution gradients"
SLICE = 256
SHARES = (1 / 32, 1 / 16, 1 / 8, 1 / 4, 1 / 2)  # d / M
PAPER_SHARE = 1 / 8
MIN_SLICES = 64
SPECTRUM_POINTS = 64
TESTED = 5  # gradients at every age: one batch alone says little
TERNARY = "ternary gradients"
CLIP = 2.5
LIMIT = 4.0  # of the histograms, in standard deviations of the raw gradient
MOMENTS = {"early": 0.05, "middle": 0.5, "late": 1.0}


@dataclass(frozen=True)
class CompressedGradients(ClaimStudy):
    """Subjects as `thinwire study` names them, "mnist" or "cifar10:cifarnet", each trained for some steps."""

    subjects: Sequence[str]
    steps: int
    needs_data = True

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [
            ClaimRun(COMPRESSED, {"task": subject, "steps": self.steps, "methods": list(COMPARED)}, seed)
            for subject in self.subjects
        ]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)  # sums of floats depend on it
        [subject] = read_subjects(run.settings["task"], run.settings["steps"], run.seed)
        found = [_looked_at(snapshot, run, tell) for snapshot in record(subject, data, tell)]
        return {"moments": found}


def _looked_at(snapshot: Snapshot, run: ClaimRun, tell: Tell) -> dict[str, Any]:
    tell(f"compressing, {snapshot.moment}", 0, 1)
    methods = [METHODS[name] for name in run.settings["methods"]]
    finding = find_errors(snapshot, methods, TARGETS, run.seed)
    errors = [
        {"method": e.method, "target": e.target, "meets": e.meets, "error": rounded(e.error)}
        for e in finding.errors
    ]
    formats = [
        {"format": f.format, "bits": f.bits, "error": rounded(f.error), "underflow": rounded(f.underflow)}
        for f in measure_formats(snapshot)
    ]
    return {
        "moment": snapshot.moment,
        "loss": rounded(snapshot.loss),
        "lag1": rounded(finding.correlation.lag1),
        "errors": errors,
        "formats": formats,
    }


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


class ConvolutionLayer:
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
class ConvolutionGradients(ClaimStudy):
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

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        how = {"begin": self.begin, "learn": self.learn, "ages": list(self.ages)}
        return [
            ClaimRun(CONVOLUTION, {**settings_of(self.recipe), **how, "slice": SLICE, "tested": TESTED}, seed)
        ]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)
        settings = {
            k: v for k, v in run.settings.items() if k not in ("begin", "learn", "ages", "slice", "tested")
        }
        recipe = recipe_from_dict({**settings, "seed": run.seed})
        trainer = Trainer(recipe, load_task(recipe.task, data))
        layers = {name: ConvolutionLayer(self.learn) for name in convolutions(trainer.net)}
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


class WatchedTrainer(VirtualTrainer):
    """Holds the gradient of worker 0 and the mean of all workers, of the last step."""

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
class TernaryGradients(ClaimStudy):
    """One training by a recipe whose codec is terngrad; `layers` are looked at closely."""

    recipe: Recipe
    layers: tuple[str, ...]
    needs_data = True

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [ClaimRun(TERNARY, {**settings_of(self.recipe), "layers": list(self.layers)}, seed)]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
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
