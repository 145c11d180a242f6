"""TernGrad's larger nets: CifarNet with Adam, and an AlexNet with and without clipping and dropout."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judge, Judgement, Word, graded
from thinwire_lab.claims.points import points_spread
from thinwire_lab.claims.studies.training import Trainings
from thinwire_lab.run.recipe import Recipe

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
    """Two workers by Adam: by SGD with momentum so few steps do not lead away from guessing."""
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
        f"float reaches {min(accuracy.values):.1%} only", Word.OPEN, "float itself has not learnt"
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
        return Judgement(measured, Word.PARTLY, "float was not overfitted: nothing to regularise")
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

CLAIMS = (
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
