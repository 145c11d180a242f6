"""TernGrad's trainings: LeNet with N workers, CifarNet with Adam, AlexNet with clipping and dropout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from thinwire_lab.claims.claim import (
    Claim,
    Evidence,
    Judge,
    Judgement,
    Verdict,
    graded,
    points,
    points_spread,
)
from thinwire_lab.claims.training_studies import STEPS, Trainings, mnist_recipe
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


UNCLIPPED = "terngrad:clip=off"
LITTLE_DROPOUT, MUCH_DROPOUT = "alexnet", "alexnet-dropout"  # 0.2 and 0.5
LEVEL = -0.005  # what still counts as no loss
LEARNT = 0.2  # accuracy: twice that of guessing
ADAM_STEPS, LARGE_STEPS = 300, 40
FEW_EXAMPLES, FEW_EPOCHS = 5000, 10  # an AlexNet learns them by heart


def cifarnet(codec: str, workers: int, batch: int, steps: int) -> Recipe:
    """Adam with five times the paper's rate, for runs a thousand times as short."""
    return Recipe(
        "cifar10",
        "cifarnet",
        epochs=1,
        steps=steps,
        batch=batch,
        workers=workers,
        lr=1e-3,
        optimizer="adam",
        codec=codec,
        evaluations=1,
    )


def alexnet(codec: str, model: str) -> Recipe:
    """Two workers with Adam: with SGD and momentum so few steps are no better than guessing."""
    return Recipe(
        "cifar10",
        model,
        epochs=FEW_EPOCHS,
        batch=32,
        workers=2,
        lr=1e-3,
        optimizer="adam",
        codec=codec,
        evaluations=1,
    )


def unlearnt(evidence: Evidence) -> Judgement | None:
    """Runs in which float itself is hardly better than guessing say nothing about TernGrad."""
    accuracy = evidence.where(codec="dense").result("accuracy")
    if min(accuracy.values) >= LEARNT:
        return None
    return Judgement(
        f"float reaches {min(accuracy.values):.1%} only", Verdict.OPEN, "float itself has not learnt"
    )


def judge_loss(paper: float) -> Judge:
    """Reproduced if the mean difference is not below the paper's; partly if not below twice that, or if
    the paper's lies within the spread over seeds.
    """

    def judge(evidence: Evidence) -> Judgement:
        if missing := unlearnt(evidence):
            return missing
        difference = evidence.where(codec="terngrad").minus(evidence.where(codec="dense"), "accuracy")
        dense = evidence.where(codec="dense").result("accuracy")
        measured = f"{points_spread(difference)} points against float ({dense.mean:.1%})"
        reproduced, unclear = difference.mean >= paper, difference.mean + difference.deviation >= paper
        because = "" if reproduced or not unclear else "the paper's figure lies within the spread"
        return Judgement(measured, graded(reproduced, unclear or difference.mean >= 2 * paper), because)

    return judge


def judge_clipping(evidence: Evidence) -> Judgement:
    """Reproduced if clipping is better with every seed, by more than its spread, and level with float."""
    if missing := unlearnt(evidence):
        return missing
    clipped, unclipped = evidence.where(codec="terngrad"), evidence.where(codec=UNCLIPPED)
    gain = clipped.minus(unclipped, "accuracy")
    loss = clipped.minus(evidence.where(codec="dense"), "accuracy")
    measured = (
        f"clipping gains {points_spread(gain)} points; with it {points_spread(loss)} against float, without "
        f"it {points_spread(unclipped.minus(evidence.where(codec='dense'), 'accuracy'))}"
    )
    helps = min(gain.values) > 0
    holds = [helps and gain.mean > gain.deviation, loss.mean >= LEVEL]
    told = "clipping helps" if holds[0] else "the gain is within its spread" if helps else ""
    because = "" if all(holds) else told or "clipping did not help in every run"
    return Judgement(measured, graded(all(holds), any(holds)), because)


def judge_dropout(evidence: Evidence) -> Judgement:
    """Reproduced if less dropout helps TernGrad with every seed, and more than it helps float.

    At most partly unless float with little dropout is overfitted: else there is nothing to regularise.
    """
    if missing := unlearnt(evidence):
        return missing
    free = evidence.where(codec="dense", model=LITTLE_DROPOUT)
    gap = free.values(lambda one: one.result["test_loss"] - one.result["losses"][-1][1])
    gains = {}
    for codec in ("terngrad", "dense"):
        own = evidence.where(codec=codec)
        gains[codec] = own.where(model=LITTLE_DROPOUT).minus(own.where(model=MUCH_DROPOUT), "accuracy")
    measured = (
        f"dropout 0.2 instead of 0.5 gives TernGrad {points_spread(gains['terngrad'])} points, float "
        f"{points_spread(gains['dense'])}; float's loss is {gap.mean:+.2f} on the test set against training"
    )
    helps = min(gains["terngrad"].values) > 0
    more = all(t > d for t, d in zip(gains["terngrad"].values, gains["dense"].values, strict=True))
    because = "" if helps and more else "it helps float as much" if helps else "it does not help in every run"
    if helps and more and min(gap.values) <= 0:
        return Judgement(measured, Verdict.PARTLY, "float was not overfitted: nothing to regularise")
    return Judgement(measured, graded(helps and more, helps), because)


Named = Mapping[str, tuple[str, str]]  # codec and model, by what a reader calls them


def _dots(evidence: Evidence, figure: Figure, names: Named) -> None:
    """A dot for every run."""
    axes = figure.subplots()
    for row, (codec, model) in enumerate(names.values()):
        found = evidence.where(codec=codec, model=model).result("accuracy").values
        axes.plot([100 * value for value in found], [row] * len(found), "o", color="#0072b2")
    axes.set_yticks(range(len(names)), list(names))
    axes.set(xlabel="test accuracy, percent", ylim=(-0.5, len(names) - 0.5))


def plot_clipping(evidence: Evidence, figure: Figure) -> None:
    codecs = {"not clipped": UNCLIPPED, "TernGrad": "terngrad", "float": "dense"}
    _dots(evidence, figure, {name: (codec, LITTLE_DROPOUT) for name, codec in codecs.items()})


def plot_dropout(evidence: Evidence, figure: Figure) -> None:
    codecs, models = {"TernGrad": "terngrad", "float": "dense"}, {"0.5": MUCH_DROPOUT, "0.2": LITTLE_DROPOUT}
    both = {f"{c}, dropout {m}": (codecs[c], models[m]) for c in codecs for m in models}
    _dots(evidence, figure, both)


CLIPPING = Trainings(
    [alexnet(codec, LITTLE_DROPOUT) for codec in ("dense", "terngrad", UNCLIPPED)], FEW_EXAMPLES
)
DROPOUT = Trainings(
    [alexnet(codec, model) for codec in ("dense", "terngrad") for model in (LITTLE_DROPOUT, MUCH_DROPOUT)],
    FEW_EXAMPLES,
)
ALEXNET_SCALED_DOWN = (
    f"AlexNet's shape for 32x32 pictures (5.8 M parameters), {FEW_EPOCHS} passes over the first "
    f"{FEW_EXAMPLES:,} pictures of CIFAR-10 (paper: ImageNet, 370,000 steps), so that it overfits; 2 workers "
    "with 32 examples each (paper: 128), no augmentation; by Adam (paper: SGD), because by SGD it does not "
    "leave guessing in so few steps"
)

NET_CLAIMS = (
    Claim(
        id="terngrad-adam-small-batch",
        paper="TernGrad",
        place="Table 1",
        text="CifarNet on CIFAR-10 by Adam, 2 workers, total batch 128, loses 0.92 points.",
        scaled_down=(
            f"{ADAM_STEPS} steps (paper: 300,000) at 5 times the rate; no augmentation, no weight decay"
        ),
        study=Trainings([cifarnet(codec, 2, 64, ADAM_STEPS) for codec in ("dense", "terngrad")]),
        judge=judge_loss(-0.0092),
    ),
    Claim(
        id="terngrad-adam-large-batch",
        paper="TernGrad",
        place="Table 1",
        text="CifarNet on CIFAR-10 by Adam, 16 workers, total batch 2048, loses 0.39 points.",
        scaled_down=(
            f"total batch 512, {LARGE_STEPS} steps (paper: 18,750) at 5 times the rate; no augmentation, no "
            "weight decay"
        ),
        study=Trainings([cifarnet(codec, 16, 32, LARGE_STEPS) for codec in ("dense", "terngrad")]),
        judge=judge_loss(-0.0039),
    ),
    Claim(
        id="terngrad-clipping",
        paper="TernGrad",
        place="Table 2",
        text=(
            "AlexNet with clipped ternary gradients is level with float; without clipping it loses 2.7 "
            "points."
        ),
        scaled_down=ALEXNET_SCALED_DOWN,
        study=CLIPPING,
        judge=judge_clipping,
        plot=plot_clipping,
    ),
    Claim(
        id="terngrad-dropout",
        paper="TernGrad",
        place="section 5, AlexNet",
        text=(
            "Ternary gradients regularise by themselves: AlexNet needs less dropout with them (0.2, not 0.5)."
        ),
        scaled_down=ALEXNET_SCALED_DOWN,
        study=DROPOUT,
        judge=judge_dropout,
        plot=plot_dropout,
    ),
)


FEW, MANY = (2, 4, 16), (64,)  # workers
DENSE_WORKERS = 4  # a mean of equal shares of the same 64 examples is the same for any number of them
LOSS = -0.0022  # the largest in the paper
OPTIMIZERS = {"momentum": (0.9, 0.01), "vanilla": (0.0, 0.1)}  # momentum and learning rate


def _study(workers: Sequence[int]) -> Trainings:
    """The study, cheap runs first."""
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


WORKER_CLAIMS = (
    _claim("terngrad-workers", FEW, "2 to 16"),
    _claim("terngrad-many-workers", MANY, "64"),  # a run takes minutes, so it is one of its own
)
