"""Accuracy claims that the long runs on CIFAR-10 settle, which `thinwire compare` records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judge, Judgement, graded
from thinwire_lab.claims.points import points_spread
from thinwire_lab.claims.run import Measured
from thinwire_lab.claims.studies.training import fewer_bytes
from thinwire_lab.claims.study import Recorded
from thinwire_lab.run.lines_file import LinesFile

FILE = "accuracy-cifar10.jsonl"
FLOAT = "ddp"
SCALED_DOWN = "CIFAR-10, a residual net of 0.66 M parameters, 4 virtual workers, 7 epochs"

GRADIVEQ_CODEC = "gradiveq:4,sample=8,compress=16 >> qsgd:8 @ memory=momentum:mask=off,lr=on"


def reader(codec: str) -> Callable[[Path], Sequence[Measured]]:
    """Reads the runs of the codec and of float with the same recipe and seeds; the newest recipe counts."""

    def read(path: Path) -> Sequence[Measured]:
        newest: dict[tuple[str, int, str], Measured] = {}
        for line in LinesFile(path).lines():
            values = json.loads(line)
            recipe: dict[str, Any] = values["settings"]["recipe"]
            one = Measured(recipe, int(recipe["seed"]), values["result"])
            newest[recipe["codec"], one.seed, _but_codec_and_seed(recipe)] = one
        last = [rest for asked, _, rest in newest if asked == FLOAT][-1:]
        runs = {(asked, seed): one for (asked, seed, rest), one in newest.items() if [rest] == last}
        both = [seed for asked, seed in runs if asked == codec and (FLOAT, seed) in runs]
        return [runs[asked, seed] for asked in (FLOAT, codec) for seed in both]

    return read


def _but_codec_and_seed(recipe: dict[str, Any]) -> str:
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


def _study(codec: str) -> Recorded:
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
        scaled_down=f"{SCALED_DOWN} (paper: GoogLeNet on ImageNet)",
        study=_study("terngrad"),
        judge=judge_loss(-0.02, -0.03),
    ),
)
GRADIVEQ = (
    Claim(
        id="gradiveq-accuracy",
        paper="GradiVeQ",
        place="abstract",
        text="There is no noticeable loss of accuracy.",
        scaled_down=f"{SCALED_DOWN} (paper: CIFAR-100, ResNet-32 and VGG-16, to convergence)",
        study=_study(GRADIVEQ_CODEC),
        judge=judge_loss(-0.005, -0.01, "short cycles and a memory"),
    ),
)
FFT = (
    Claim(
        id="fft-accuracy",
        paper="FFT sparsification",
        place="abstract (arXiv)",
        text="There is no loss of accuracy.",
        scaled_down=f"{SCALED_DOWN} (paper: ImageNet and CIFAR-10 on 32 GPUs)",
        study=_study("fft:0.85"),
        judge=judge_loss(-0.005, -0.01, "a residual memory"),
    ),
)
