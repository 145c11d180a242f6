"""Accuracy claims that the long runs on CIFAR-10 settle, which `thinwire compare` records."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from thinwire.lab.claims.claim import Claim
from thinwire.lab.claims.evidence import Evidence
from thinwire.lab.claims.judgement import Judge, Judgement, graded
from thinwire.lab.claims.points import points_spread
from thinwire.lab.claims.run import Measured
from thinwire.lab.claims.studies.training import fewer_bytes
from thinwire.lab.claims.study import Recorded
from thinwire.lab.run.lines_file import LinesFile

FILE = "accuracy-cifar10.jsonl"
FLOAT = "ddp"
SCALED_DOWN = "CIFAR-10, a residual net of 0.66 M parameters, 4 virtual workers, 7 epochs"

Wanted = Callable[[str], bool]  # whether a codec is meant by the claim


def reader(wanted: Wanted) -> Callable[[Path], Sequence[Measured]]:
    """Reads float and one setting of the codec: the one with the most seeds, of those the best."""

    def read(path: Path) -> Sequence[Measured]:
        floats, others = _runs(path, wanted)
        if not others:
            return []
        best = max(others.values(), key=lambda runs: (len(runs), sum(r.result["accuracy"] for r in runs)))
        return [*(floats[one.seed] for one in best), *best]

    return read


def _runs(path: Path, wanted: Wanted) -> tuple[dict[int, Measured], dict[str, list[Measured]]]:
    """Float by seed, and by codec the runs that have a float run of the same recipe and seed."""
    newest: dict[tuple[str, int, str], Measured] = {}
    for line in LinesFile(path).lines():
        values = json.loads(line)
        recipe: dict[str, Any] = values["settings"]["recipe"]
        one = Measured(recipe, int(recipe["seed"]), values["result"])
        newest[recipe["codec"], one.seed, _but_codec_and_seed(recipe)] = one
    recipes = [rest for codec, _, rest in newest if codec == FLOAT] or [""]
    floats = {
        seed: one for (codec, seed, rest), one in newest.items() if codec == FLOAT and rest == recipes[-1]
    }
    others: dict[str, list[Measured]] = {}
    for (codec, seed, rest), one in newest.items():
        if wanted(codec) and seed in floats and rest == recipes[-1]:
            others.setdefault(codec, []).append(one)
    return floats, others


def _but_codec_and_seed(recipe: dict[str, Any]) -> str:
    return json.dumps({k: v for k, v in recipe.items() if k not in ("codec", "seed")}, sort_keys=True)


def judge_loss(reproduced: float, partly: float) -> Judge:
    """Reproduced or partly if the mean difference to float, seed by seed, is not below these."""

    def judge(evidence: Evidence) -> Judgement:
        own = Evidence([one for one in evidence.measured if one.settings["codec"] != FLOAT])
        difference = own.minus(evidence.where(codec=FLOAT), "accuracy")
        measured = (
            f"{own.measured[0].settings['codec']}: {points_spread(difference)} points against float at "
            f"{own.values(fewer_bytes).mean:.1f} times fewer bytes"
        )
        return Judgement(measured, graded(difference.mean >= reproduced, difference.mean >= partly))

    return judge


def _study(codecs: str, wanted: Wanted) -> Recorded:
    command = (
        f'thinwire compare cifar10-study --seeds 3 --network virtual --data DIR --codecs "ddp,{codecs}" '
        f"--records docs/records/{FILE}"
    )
    return Recorded(FILE, command, reader(wanted))


TERNGRAD = (
    Claim(
        id="terngrad-accuracy",
        paper="TernGrad",
        place="abstract",
        text="Deep nets lose less than 2 points of accuracy on average.",
        scaled_down=f"{SCALED_DOWN} (paper: GoogLeNet on ImageNet)",
        study=_study("terngrad", lambda codec: codec == "terngrad"),
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
        study=_study("gradiveq:8", lambda codec: codec.startswith("gradiveq")),
        judge=judge_loss(-0.005, -0.01),
    ),
)
FFT = (
    Claim(
        id="fft-accuracy",
        paper="FFT sparsification",
        place="abstract (arXiv)",
        text="There is no loss of accuracy.",
        scaled_down=f"{SCALED_DOWN} (paper: ImageNet and CIFAR-10 on 32 GPUs)",
        study=_study("fft:0.85", lambda codec: codec.startswith("fft")),
        judge=judge_loss(-0.005, -0.01),
    ),
)
