"""A subject of a study: a task and a model; its gradients are recorded early, midway and late in training."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.errors import LabError
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout
from thinwire_lab.data import load_task
from thinwire_lab.models import model_card
from thinwire_lab.run.recipe import Recipe, recipe_for
from thinwire_lab.run.trainer import Trainer
from thinwire_lab.study.methods import Snapshot

# Models that do not learn by the recipe of their task. CifarNet as in TernGrad's experiments: with ResNet's
# rate it stays at the loss of guessing, and such gradients say nothing.
OWN_SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"cifarnet": {"optimizer": "adam", "lr": 2e-4}}
)
MOMENTS = {"early": 0.05, "middle": 0.5, "late": 0.95}  # shares of the run
WINDOW = 40  # steps before a moment whose gradients are recorded too
MIN_STEPS = 20  # below that two moments would share their steps
Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


@dataclass(frozen=True)
class StudySubject:
    """What is trained: the task's recipe on one worker, so that its gradient is what a worker would send."""

    recipe: Recipe

    @property
    def name(self) -> str:
        return f"{self.recipe.task} {self.recipe.model}"


def read_subjects(text: str, steps: int, seed: int) -> list[StudySubject]:
    """Tasks separated by commas, each with or without a model: "mnist,cifar10:cifarnet".

    >>> [subject.name for subject in read_subjects("digits,cifar10:cifarnet", steps=100, seed=0)]
    ['digits digits-cnn', 'cifar10 cifarnet']
    """
    words = [word.strip() for word in text.split(",") if word.strip()]
    if not words:
        raise LabError("no task named: give for example --tasks digits,mnist")
    subjects = [_read(word, steps, seed) for word in words]
    return _distinct(subjects)


def _read(word: str, steps: int, seed: int) -> StudySubject:
    task, _, model = word.partition(":")
    recipe = recipe_for(task)
    chosen = model or recipe.model
    model_card(chosen)  # refuses an unknown name before anything is trained
    own = OWN_SETTINGS.get(chosen, {})
    return StudySubject(replace(recipe, model=chosen, workers=1, steps=steps, seed=seed, **own))


def _distinct(subjects: Sequence[StudySubject]) -> list[StudySubject]:
    names = [subject.name for subject in subjects]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise LabError(f"--tasks names {', '.join(sorted(twice))} twice: name each once")
    return list(subjects)


def record(subject: StudySubject, data: Path | None, tell: Tell = lambda *_: None) -> Iterator[Snapshot]:
    """Trains by the task's recipe on one worker and gives a snapshot at each moment, while it trains."""
    recipe = subject.recipe
    task = load_task(recipe.task, data)
    steps = recipe.num_steps(len(task.train))
    if steps < MIN_STEPS:
        raise LabError(f"--steps {steps} is too short a run to have a middle: take at least {MIN_STEPS}")
    moments = {math.ceil(share * steps): moment for moment, share in MOMENTS.items()}
    window: deque[Tensor] = deque(maxlen=WINDOW)
    losses: deque[float] = deque(maxlen=WINDOW)
    trainer = Trainer(recipe, task)
    layout, dense_names = compressed_tensors(trainer.net)
    for step, indices in enumerate(trainer.order.batches(0, 0, steps), 1):
        losses.append(trainer.backward(indices))
        gradient = gradient_of(trainer.net, layout)
        if step in moments:
            yield Snapshot(
                subject=subject.name,
                moment=moments[step],
                step=step,
                num_steps=steps,
                loss=sum(losses) / len(losses),
                layout=layout,
                gradient=gradient,
                before=tuple(window),
                dense_names=dense_names,
            )
        window.append(gradient)
        trainer.update()
        tell(f"training {subject.name}", step, steps)


def gradient_of(net: nn.Module, layout: Layout) -> Tensor:
    """The gradients of the layout's tensors end to end, in the order of memory."""
    parameters = dict(net.named_parameters())
    pieces = []
    for name in layout.names:
        gradient = parameters[name].grad
        assert gradient is not None, name
        pieces.append(gradient.contiguous().flatten())
    return torch.cat(pieces)


def compressed_tensors(net: nn.Module) -> tuple[Layout, tuple[str, ...]]:
    """The tensors that the default policy compresses, and the names of those that it keeps dense."""
    model, policy = Model.of(net), Policy.of("terngrad")
    compressed = [spec for spec in model.specs if not policy.choose(spec, model).codec.own_dtype]
    layout = Layout.packed(compressed)
    return layout, tuple(spec.name for spec in model.specs if spec.name not in layout.names)
