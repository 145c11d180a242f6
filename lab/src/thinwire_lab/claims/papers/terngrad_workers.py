"""TernGrad, Figure 3: LeNet's accuracy whatever the number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, graded
from thinwire_lab.claims.points import points
from thinwire_lab.claims.studies.mnist_recipe import STEPS, mnist_recipe
from thinwire_lab.claims.studies.training import Trainings
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FEW, MANY = (2, 4, 16), (64,)  # workers
DENSE_WORKERS = 4  # a mean of equal shares of the same 64 examples is the same for any number of them
LOSS = -0.0022  # the largest in the paper
OPTIMIZERS = {"momentum": (0.9, 0.01), "vanilla": (0.0, 0.1)}  # momentum and learning rate


def _study(workers: Sequence[int]) -> Trainings:
    """The cheap ones first."""
    optimizers = OPTIMIZERS.values()
    dense = [mnist_recipe("dense", DENSE_WORKERS, lr, momentum) for momentum, lr in optimizers]
    ternary = [mnist_recipe("terngrad", n, lr, momentum) for n in workers for momentum, lr in optimizers]
    return Trainings(dense + ternary)


def differences(evidence: Evidence) -> dict[tuple[str, int], Spread]:
    """By optimizer and number of workers: TernGrad's accuracy minus that of float, seed by seed."""
    found = {}
    for name, (momentum, _) in OPTIMIZERS.items():
        own = evidence.where(momentum=momentum)
        ternary = own.where(codec="terngrad")
        for workers in sorted({one.settings["workers"] for one in ternary.measured}):
            found[name, workers] = ternary.where(workers=workers).minus(own.where(codec="dense"), "accuracy")
    return found


def judge(evidence: Evidence) -> Judgement:
    """Reproduced if no mean loss is above 0.22 points, the largest of the paper; partly if not all are."""
    means = {key: spread.mean for key, spread in differences(evidence).items()}
    worst, best = min(means, key=lambda key: means[key]), max(means, key=lambda key: means[key])
    measured = (
        f"mean difference from {points(means[worst])} ({worst[0]}, {worst[1]} workers) "
        f"to {points(means[best])} points ({best[0]}, {best[1]} workers)"
    )
    inside = sum(mean >= LOSS for mean in means.values())
    because = f"after {STEPS} steps within the paper's -0.22 in {inside} of {len(means)} cases"
    return Judgement(
        measured, graded(inside == len(means), inside > 0), "" if inside == len(means) else because
    )


def plot(evidence: Evidence, figure: Figure) -> None:
    """Differences against the number of workers; bars reach from the lowest to the highest seed."""
    axes = figure.subplots()
    found = differences(evidence)
    for name, marker in zip(OPTIMIZERS, "os", strict=True):
        own = {workers: spread for (optimizer, workers), spread in found.items() if optimizer == name}
        middle = [100 * spread.mean for spread in own.values()]
        low = [m - 100 * min(spread.values) for m, spread in zip(middle, own.values(), strict=True)]
        high = [100 * max(spread.values) - m for m, spread in zip(middle, own.values(), strict=True)]
        axes.errorbar(list(own), middle, [low, high], marker=marker, capsize=3, label=name)
        axes.set_xscale("log", base=2)
        axes.set_xticks(list(own), [str(workers) for workers in own])
    axes.axhspan(-0.22, 0.15, color="#9ca3af", alpha=0.25, label="the paper's range")
    axes.set(xlabel="workers", ylabel="accuracy against float, points")
    axes.legend(frameon=False)


def _claim(id: str, workers: Sequence[int], numbers: str) -> Claim:
    return Claim(
        id=id,
        paper="TernGrad",
        place="Figure 3",
        text=(
            f"LeNet on MNIST keeps its accuracy (+0.15 to -0.22 points) with {numbers} workers, by "
            "momentum and "
            "by vanilla SGD."
        ),
        scaled_down=(
            f"{STEPS} steps (paper: 10,000), N = {', '.join(map(str, workers))}; the last layer stays "
            "dense (the "
            "paper's script makes it ternary too); float is run with 4 workers only, since its mean over the "
            "same 64 examples does not depend on their number"
        ),
        study=_study(workers),
        judge=judge,
        plot=plot,
    )


CLAIMS = (
    _claim("terngrad-workers", FEW, "2 to 16"),
    _claim("terngrad-many-workers", MANY, "64"),  # a run takes minutes, so it is one of its own
)
