"""Good recipes: one for each task, and the demo's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType

from thinwire.errors import LabError
from thinwire_lab.run.recipe import Recipe


def digits() -> Recipe:
    """A small CNN on scikit-learn's digits: above 97 % in seconds."""
    return Recipe("digits", "digits-cnn", epochs=10, batch=16, lr=0.05)


def demo() -> Recipe:
    """The demo: digits over links so slow that sending the gradients takes longer than computing them."""
    return replace(digits(), epochs=8, rate="50mbit", evaluations=8)


def mnist() -> Recipe:
    """LeNet on MNIST, TernGrad's first experiment (total batch 64, momentum)."""
    return Recipe("mnist", "lenet", epochs=2, batch=16, lr=0.02, weight_decay=5e-4)


def fashion_mnist() -> Recipe:
    """LeNet on Fashion-MNIST: the same size as MNIST, but not as easy."""
    return replace(mnist(), task="fashion-mnist", epochs=4)


def cifar10() -> Recipe:
    """ResNet-20 on CIFAR-10 with shifts and flips."""
    return Recipe("cifar10", "resnet20", epochs=10, batch=32, lr=0.1, weight_decay=1e-4, augment=True)


def cifar10_study() -> Recipe:
    """A net of half a million parameters on CIFAR-10, in minutes of two cores: for comparing codecs."""
    return replace(cifar10(), model="resnet8-wide", epochs=7, weight_decay=5e-4, warmup=0.15, evaluations=7)


def shakespeare() -> Recipe:
    """A small character transformer on tiny Shakespeare, with Adam."""
    return Recipe(
        "shakespeare", "char-transformer", epochs=3, batch=16, lr=1e-3, optimizer="adam", warmup=0.1
    )


def shakespeare_study() -> Recipe:
    """The same transformer with AdamW, for comparing codecs."""
    return replace(shakespeare(), epochs=2, lr=4e-3, optimizer="adamw", weight_decay=0.1, evaluations=2)


RECIPES: Mapping[str, Callable[[], Recipe]] = MappingProxyType(
    {
        "digits": digits,
        "mnist": mnist,
        "fashion-mnist": fashion_mnist,
        "cifar10": cifar10,
        "cifar10-study": cifar10_study,
        "shakespeare": shakespeare,
        "shakespeare-study": shakespeare_study,
    }
)


def recipe_for(task: str) -> Recipe:
    """The good recipe for a task."""
    if task not in RECIPES:
        raise LabError(f"unknown task {task!r}: choose one of {', '.join(RECIPES)}")
    return RECIPES[task]()
