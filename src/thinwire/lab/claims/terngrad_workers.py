"""TernGrad, Figure 3: LeNet's accuracy whatever the number of workers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thinwire.lab.claims.claim import Claim
from thinwire.lab.claims.evidence import Evidence
from thinwire.lab.claims.judgement import Judgement, Word
from thinwire.lab.claims.mnist_recipe import STEPS, mnist_recipe
from thinwire.lab.claims.points import points
from thinwire.lab.claims.training import Trainings
from thinwire.lab.run.recipe import Recipe
from thinwire.lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WORKERS = (2, 4, 16, 64)
DENSE_WORKERS = 4  # a mean of equal shares of the same 64 examples is the same for any number of them
LOSS = -0.0022  # the largest in the paper
OPTIMIZERS = {"momentum": (0.9, 0.01), "vanilla": (0.0, 0.1)}  # momentum and learning rate


def _recipes() -> list[Recipe]:
    """The cheap ones first."""
    dense = [mnist_recipe("dense", DENSE_WORKERS, lr, momentum) for momentum, lr in OPTIMIZERS.values()]
    ternary = [
        mnist_recipe("terngrad", n, lr, momentum) for n in WORKERS for momentum, lr in OPTIMIZERS.values()
    ]
    return dense + ternary


def differences(evidence: Evidence) -> dict[tuple[str, int], Spread]:
    """By optimizer and number of workers: TernGrad's accuracy minus that of float, seed by seed."""
    found = {}
    for name, (momentum, _) in OPTIMIZERS.items():
        own = evidence.where(momentum=momentum)
        for workers in WORKERS:
            ternary = own.where(codec="terngrad", workers=workers)
            found[name, workers] = ternary.minus(own.where(codec="dense"), "accuracy")
    return found


def judge(evidence: Evidence) -> Judgement:
    """Reproduced if the mean loss is nowhere above the paper's largest, 0.22 points."""
    means = {key: spread.mean for key, spread in differences(evidence).items()}
    worst, best = min(means, key=lambda key: means[key]), max(means, key=lambda key: means[key])
    measured = (
        f"mean difference from {points(means[worst])} ({worst[0]}, {worst[1]} workers) to "
        f"{points(means[best])} points ({best[0]}, {best[1]} workers)"
    )
    if means[worst] >= LOSS:
        return Judgement(measured, Word.REPRODUCED)
    inside = sum(mean >= LOSS for mean in means.values())
    because = f"within the paper's -0.22 in {inside} of {len(means)} cases"
    return Judgement(measured, Word.PARTLY if inside else Word.REFUTED, because)


def plot(evidence: Evidence, figure: Figure) -> None:
    """Differences against the number of workers; bars reach from the lowest to the highest seed."""
    axes = figure.subplots()
    found = differences(evidence)
    for name, marker in zip(OPTIMIZERS, "os", strict=True):
        spreads = [found[name, workers] for workers in WORKERS]
        middle = [100 * spread.mean for spread in spreads]
        low = [m - 100 * min(spread.values) for m, spread in zip(middle, spreads, strict=True)]
        high = [100 * max(spread.values) - m for m, spread in zip(middle, spreads, strict=True)]
        axes.errorbar(WORKERS, middle, [low, high], marker=marker, capsize=3, label=name)
    axes.axhspan(-0.22, 0.15, color="#9ca3af", alpha=0.25, label="the paper's range")
    axes.set_xscale("log", base=2)
    axes.set_xticks(WORKERS, [str(workers) for workers in WORKERS])
    axes.set(xlabel="workers", ylabel="accuracy against float, points")
    axes.legend(frameon=False)


CLAIMS = (
    Claim(
        id="terngrad-workers",
        paper="TernGrad",
        place="Figure 3",
        text=(
            "LeNet on MNIST keeps its accuracy (+0.15 to -0.22 points) with 2 to 64 workers, by momentum "
            "and by vanilla SGD."
        ),
        scaled_down=(
            f"{STEPS} steps (paper: 10,000), N = 2, 4, 16, 64; the last layer stays dense (the paper's "
            "script makes it ternary too); float is run with 4 workers only, since its mean over the same "
            "64 examples does not depend on their number"
        ),
        study=Trainings(_recipes()),
        judge=judge,
        plot=plot,
    ),
)
