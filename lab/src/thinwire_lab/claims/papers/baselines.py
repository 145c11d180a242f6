"""Claims of the methods beside the three papers: QSGD, DGC, PowerSGD, 1-bit SGD."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judge, Judgement, Word, graded
from thinwire_lab.claims.points import points_spread
from thinwire_lab.claims.studies.mnist_recipe import SCALED_DOWN, STEPS, mnist_recipe
from thinwire_lab.claims.studies.training import Trainings, fewer_bytes

LEVEL, NEAR = -0.005, -0.01
FEEDBACK, NO_FEEDBACK = "sign", "sign @ memory=none"
DGC = "dgc:0.001,warmup=60"
POWERSGD = ("powersgd:1", "powersgd:4")


def judge_level(codec: str) -> Judge:
    """Reproduced if the mean loss is at most half a point, partly at most a point."""

    def judge(evidence: Evidence) -> Judgement:
        own = evidence.where(codec=codec)
        difference = own.minus(evidence.where(codec="dense"), "accuracy")
        fewer = own.values(fewer_bytes).mean
        measured = f"{points_spread(difference)} points against float at {fewer:.1f} times fewer bytes"
        word = graded(difference.mean >= LEVEL, difference.mean >= NEAR)
        return Judgement(measured, word, f"for a run of {STEPS} steps" if word is Word.REFUTED else "")

    return judge


def judge_feedback(evidence: Evidence) -> Judgement:
    """Reproduced if without feedback at least a point more is lost, with every seed."""
    dense = evidence.where(codec="dense")
    fed = evidence.where(codec=FEEDBACK).minus(dense, "accuracy")
    unfed = evidence.where(codec=NO_FEEDBACK).minus(dense, "accuracy")
    measured = (
        f"{points_spread(fed)} points against float with error feedback, {points_spread(unfed)} without"
    )
    gaps = [a - b for a, b in zip(fed.values, unfed.values, strict=True)]
    return Judgement(measured, graded(min(gaps) >= 0.01, min(gaps) > 0))


def judge_rank(evidence: Evidence) -> Judgement:
    """Reproduced if rank 4 is level with float and rank 1 is below it."""
    dense = evidence.where(codec="dense")
    low, high = (evidence.where(codec=codec) for codec in POWERSGD)
    one, four = low.minus(dense, "accuracy"), high.minus(dense, "accuracy")
    measured = (
        f"rank 1 {points_spread(one)} points at {low.values(fewer_bytes).mean:.0f} times fewer bytes, rank 4 "
        f"{points_spread(four)} at {high.values(fewer_bytes).mean:.0f}"
    )
    holds = [four.mean >= LEVEL, one.mean < four.mean]
    word = graded(all(holds), holds[0])
    return Judgement(
        measured,
        word,
        "" if word is Word.REPRODUCED else "rank 4 level, rank 1 not below it" if holds[0] else "",
    )


def _study(codecs: Sequence[str]) -> Trainings:
    return Trainings([mnist_recipe(codec) for codec in ("dense", *codecs)])


CLAIMS = (
    Claim(
        id="qsgd-accuracy",
        paper="QSGD",
        place="experiments",
        text="4 bits keep the accuracy (AlexNet 60.05 against 59.50 %).",
        scaled_down=f"{SCALED_DOWN} (paper: AlexNet on ImageNet)",
        study=_study(["qsgd:4"]),
        judge=judge_level("qsgd:4"),
    ),
    Claim(
        id="dgc-accuracy",
        paper="DGC",
        place="experiments",
        text="Sending 0.1 % of the gradients with momentum correction keeps the accuracy.",
        scaled_down=(
            f"{SCALED_DOWN} (paper: ResNet-50 on ImageNet), warm-up of 60 steps (paper: 4 to 5 epochs)"
        ),
        study=_study([DGC]),
        judge=judge_level(DGC),
    ),
    Claim(
        id="powersgd-rank",
        paper="PowerSGD",
        place="Table 3",
        text="Rank 4 is level with SGD (94.5 against 94.3 %), rank 1 a little below (93.6 %).",
        scaled_down=f"{SCALED_DOWN} (paper: ResNet-18 on CIFAR-10, 300 epochs)",
        study=_study(POWERSGD),
        judge=judge_rank,
    ),
    Claim(
        id="onebit-feedback",
        paper="1-bit SGD",
        place="section 3",
        text="One bit a gradient works because the error is fed back; without feedback it does not.",
        scaled_down=f"{SCALED_DOWN} (paper: speech, 160 M parameters); two values a tensor, not a column",
        study=_study([FEEDBACK, NO_FEEDBACK]),
        judge=judge_feedback,
    ),
)
