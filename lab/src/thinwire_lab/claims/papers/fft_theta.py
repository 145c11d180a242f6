"""FFT sparsification's theta: diminishing it, and lowering it when training has gone wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, graded
from thinwire_lab.claims.points import points_spread
from thinwire_lab.claims.studies.mnist_recipe import SCALED_DOWN, STEPS, mnist_recipe
from thinwire_lab.claims.studies.training import Trainings

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LEVEL = -0.005
RECOVERED = 0.8  # of what was lost
CONSTANT = "fft:0.99 @ memory=none"
DIMINISHING = f"{CONSTANT} control=diminish"
RUINED = "fft:0.9995 @ memory=none"
LOWERED = f"{RUINED} control=steps:0=1/{STEPS // 2}=0"


def judge_diminishing(evidence: Evidence) -> Judgement:
    """Reproduced if a diminishing theta is level with float; partly if it is better than a constant one."""
    dense = evidence.where(codec="dense")
    constant = evidence.where(codec=CONSTANT).minus(dense, "accuracy")
    diminishing = evidence.where(codec=DIMINISHING).minus(dense, "accuracy")
    measured = (
        f"theta 0.99 without memory: {points_spread(constant)} points against float if constant, "
        f"{points_spread(diminishing)} if it falls with the learning rate"
    )
    return Judgement(measured, graded(diminishing.mean >= LEVEL, diminishing.mean > constant.mean))


def judge_recovery(evidence: Evidence) -> Judgement:
    """Reproduced if 80 % of what was lost comes back; partly if a half."""
    dense = evidence.where(codec="dense")
    ruined = evidence.where(codec=RUINED).minus(dense, "accuracy")
    lowered = evidence.where(codec=LOWERED).minus(dense, "accuracy")
    share = 1 - lowered.mean / ruined.mean
    measured = (
        f"theta 0.9995 throughout: {points_spread(ruined)} points against float; lowered to 0 midway: "
        f"{points_spread(lowered)}"
    )
    return Judgement(
        measured, graded(share >= RECOVERED, share >= 0.5), f"{share:.0%} of the loss comes back"
    )


def plot(evidence: Evidence, figure: Figure) -> None:
    """Training losses of all runs."""
    axes = figure.subplots()
    looks = {
        RUINED: ("#d55e00", "0.9995"),
        LOWERED: ("#0072b2", "0.9995, then 0"),
        "dense": ("#6b7280", "float"),
    }
    for codec, (colour, label) in looks.items():
        for one in evidence.where(codec=codec).measured:
            steps, losses = zip(*one.result["losses"], strict=True)
            axes.plot(
                steps, losses, lw=1, color=colour, label=label if one.seed == evidence.seeds[0] else None
            )
    axes.set(xlabel="step", ylabel="training loss", ylim=(0, 2.5))
    axes.legend(frameon=False)


CLAIMS = (
    Claim(
        id="fft-diminishing-theta",
        paper="FFT sparsification",
        place="abstract, convergence",
        text="With a diminishing theta training converges as plain SGD does.",
        scaled_down=f"{SCALED_DOWN} (paper: AlexNet on ImageNet, ResNet-32 on CIFAR-10)",
        study=Trainings([mnist_recipe(codec) for codec in ("dense", CONSTANT, DIMINISHING)]),
        judge=judge_diminishing,
    ),
    Claim(
        id="fft-recovery",
        paper="FFT sparsification",
        place="abstract",
        text="Accuracy that was lost to a large theta comes back when theta is lowered.",
        scaled_down=f"{SCALED_DOWN}; theta is lowered after half of them, by a schedule",
        study=Trainings([mnist_recipe(codec) for codec in ("dense", RUINED, LOWERED)]),
        judge=judge_recovery,
        plot=plot,
    ),
)
