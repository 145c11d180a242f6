"""A subject of a study: a task of the lab and the model that is trained on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.models import model_card
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.run.recipes import recipe_for

# Models that do not learn by the recipe of their task. CifarNet as in TernGrad's experiments: with ResNet's
# rate it stays at the loss of guessing, and such gradients say nothing.
OWN_SETTINGS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {"cifarnet": {"optimizer": "adam", "lr": 2e-4}}
)


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
