"""The recipe that many claims share, so that they share runs too: LeNet on MNIST, a total batch of 64."""

from __future__ import annotations

from thinwire_lab.run.recipe import Recipe

TOTAL_BATCH = 64
STEPS = 300
SCALED_DOWN = f"LeNet on MNIST, 4 virtual workers with 16 examples each, {STEPS} steps"


def mnist_recipe(codec: str, workers: int = 4, lr: float = 0.01, momentum: float = 0.9) -> Recipe:
    """TernGrad's first experiment, shortened; its codec, and how many workers share the batch."""
    return Recipe(
        "mnist",
        "lenet",
        epochs=1,
        steps=STEPS,
        batch=TOTAL_BATCH // workers,
        workers=workers,
        lr=lr,
        momentum=momentum,
        codec=codec,
        weight_decay=5e-4,
        evaluations=1,
    )
