"""Claims about accuracy: QSGD, DGC, PowerSGD and 1-bit SGD on MNIST; the three papers on CIFAR-10."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thinwire_lab.claims.claim import (
    Claim,
    Evidence,
    Judge,
    Judgement,
    Measured,
    Recorded,
    Settings,
    Verdict,
    graded,
    points_spread,
)
from thinwire_lab.claims.training_studies import SCALED_DOWN, STEPS, Trainings, fewer_bytes, mnist_recipe
from thinwire_lab.records import RecordFile

LEVEL, NEAR = -0.005, -0.01
FEEDBACK, NO_FEEDBACK = "sign", "sign @ feedback=none"
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
        return Judgement(measured, word, f"for a run of {STEPS} steps" if word is Verdict.REFUTED else "")

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
        "" if word is Verdict.REPRODUCED else "rank 4 level, rank 1 not below it" if holds[0] else "",
    )


def _trained(codecs: Sequence[str]) -> Trainings:
    return Trainings([mnist_recipe(codec) for codec in ("dense", *codecs)])


BASELINES = (
    Claim(
        id="qsgd-accuracy",
        paper="QSGD",
        place="experiments",
        text="4 bits keep the accuracy (AlexNet 60.05 against 59.50 %).",
        scaled_down=f"{SCALED_DOWN} (paper: AlexNet on ImageNet)",
        study=_trained(["qsgd:4"]),
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
        study=_trained([DGC]),
        judge=judge_level(DGC),
    ),
    Claim(
        id="powersgd-rank",
        paper="PowerSGD",
        place="Table 3",
        text="Rank 4 is level with SGD (94.5 against 94.3 %), rank 1 a little below (93.6 %).",
        scaled_down=f"{SCALED_DOWN} (paper: ResNet-18 on CIFAR-10, 300 epochs)",
        study=_trained(POWERSGD),
        judge=judge_rank,
    ),
    Claim(
        id="onebit-feedback",
        paper="1-bit SGD",
        place="section 3",
        text="One bit a gradient works because the error is fed back; without feedback it does not.",
        scaled_down=f"{SCALED_DOWN} (paper: speech, 160 M parameters); two values a tensor, not a column",
        study=_trained([FEEDBACK, NO_FEEDBACK]),
        judge=judge_feedback,
    ),
)


FILE = "accuracy-cifar10.jsonl"
FLOAT = "ddp"
CIFAR_SCALED_DOWN = "CIFAR-10, a residual net of 0.66 M parameters, 4 virtual workers, 7 epochs"

GRADIVEQ_CODEC = "gradiveq:4,sample=8,compress=16 >> qsgd:8 @ feedback=momentum:mask=off,lr=on"


def reader(codec: str) -> Callable[[Path], Sequence[Measured]]:
    """Reads the runs of the codec and of float with the same recipe and seeds; the newest recipe counts."""

    def read(path: Path) -> Sequence[Measured]:
        newest: dict[tuple[str, int, str], Measured] = {}
        for one in RecordFile(path).read(_measured):
            newest[one.settings["codec"], one.seed, _but_codec_and_seed(one.settings)] = one
        last = [rest for asked, _, rest in newest if asked == FLOAT][-1:]
        runs = {(asked, seed): one for (asked, seed, rest), one in newest.items() if [rest] == last}
        both = [seed for asked, seed in runs if asked == codec and (FLOAT, seed) in runs]
        return [runs[asked, seed] for asked in (FLOAT, codec) for seed in both]

    return read


def _measured(values: dict[str, Any]) -> Measured:
    recipe = values["settings"]["recipe"]
    return Measured(recipe, int(recipe["seed"]), values["result"])


def _but_codec_and_seed(recipe: Settings) -> str:
    return json.dumps({k: v for k, v in recipe.items() if k not in ("codec", "seed")}, sort_keys=True)


def judge_loss(reproduced: float, partly: float, added: str = "") -> Judge:
    """Reproduced or partly if the mean difference to float, seed by seed, is not below these.

    At most partly if something was `added` that the paper does not have.
    """

    def judge(evidence: Evidence) -> Judgement:
        own = Evidence([one for one in evidence.measured if one.settings["codec"] != FLOAT])
        difference = own.minus(evidence.where(codec=FLOAT), "accuracy")
        measured = (
            f"{own.measured[0].settings['codec']}: {points_spread(difference)} points against float at "
            f"{own.values(fewer_bytes).mean:.1f} times fewer bytes"
        )
        holds = difference.mean >= reproduced
        because = f"by {added}, which the paper does not have" if added and holds else ""
        return Judgement(measured, graded(holds and not added, difference.mean >= partly), because)

    return judge


def _recorded(codec: str) -> Recorded:
    command = (
        f'thinwire compare cifar10-study --seeds 3 --network virtual --data DIR --codecs "ddp,{codec}" '
        f"--records docs/records/{FILE}"
    )
    return Recorded(FILE, command, reader(codec))


TERNGRAD = (
    Claim(
        id="terngrad-accuracy",
        paper="TernGrad",
        place="abstract",
        text="Deep nets lose less than 2 points of accuracy on average.",
        scaled_down=f"{CIFAR_SCALED_DOWN} (paper: GoogLeNet on ImageNet)",
        study=_recorded("terngrad"),
        judge=judge_loss(-0.02, -0.03),
    ),
)
GRADIVEQ = (
    Claim(
        id="gradiveq-accuracy",
        paper="GradiVeQ",
        place="abstract",
        text="There is no noticeable loss of accuracy.",
        scaled_down=f"{CIFAR_SCALED_DOWN} (paper: CIFAR-100, ResNet-32 and VGG-16, to convergence)",
        study=_recorded(GRADIVEQ_CODEC),
        judge=judge_loss(-0.005, -0.01, "short cycles and a memory"),
    ),
)
FFT = (
    Claim(
        id="fft-accuracy",
        paper="FFT sparsification",
        place="abstract (arXiv)",
        text="There is no loss of accuracy.",
        scaled_down=f"{CIFAR_SCALED_DOWN} (paper: ImageNet and CIFAR-10 on 32 GPUs)",
        study=_recorded("fft:0.85"),
        judge=judge_loss(-0.005, -0.01, "a residual memory"),
    ),
)
