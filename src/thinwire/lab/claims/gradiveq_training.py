"""GradiVeQ in training: its accuracy, and its chain with QSGD."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from thinwire.lab.claims.baselines import fewer_bytes
from thinwire.lab.claims.claim import Claim
from thinwire.lab.claims.evidence import Evidence
from thinwire.lab.claims.judgement import Judgement, graded
from thinwire.lab.claims.mnist_recipe import SCALED_DOWN, mnist_recipe
from thinwire.lab.claims.points import points_spread
from thinwire.lab.claims.run import Measured
from thinwire.lab.claims.study import Recorded
from thinwire.lab.claims.training import Trainings
from thinwire.lab.run.lines_file import LinesFile

LEVEL, NEAR = -0.005, -0.01
ALONE = "gradiveq:8,layers=all,slice=row,sample=50,compress=250"
CHAINED = f"{ALONE} >> qsgd:8"
ACCURACY_FILE = "accuracy-cifar10.jsonl"


def judge_chain(evidence: Evidence) -> Judgement:
    """Reproduced if the chain is level with GradiVeQ alone and sends less than half the bytes."""
    alone, chained = evidence.where(codec=ALONE), evidence.where(codec=CHAINED)
    difference = chained.minus(alone, "accuracy")
    fewer = [own.values(fewer_bytes).mean for own in (alone, chained)]
    measured = (
        f"with QSGD {points_spread(difference)} points against GradiVeQ alone; {fewer[0]:.1f} times fewer "
        f"bytes become {fewer[1]:.1f} times, dense steps included"
    )
    holds = [difference.mean >= LEVEL, fewer[1] >= 2 * fewer[0]]
    return Judgement(measured, graded(all(holds), any(holds)))


def read_accuracies(path: Path) -> Sequence[Measured]:
    """The runs that `thinwire compare` recorded: float and GradiVeQ, by seeds that have both."""
    found: dict[tuple[str, int], Measured] = {}
    for line in LinesFile(path).lines():
        values = json.loads(line)
        recipe = values["settings"]["recipe"]
        codec = {"ddp": "dense"}.get(recipe["codec"], recipe["codec"])
        found[codec, recipe["seed"]] = Measured({**recipe, "codec": codec}, recipe["seed"], values["result"])
    return _with_baseline([one for (codec, _), one in found.items() if _counts(codec)])


def _counts(codec: str) -> bool:
    return codec == "dense" or codec.startswith("gradiveq")


def _with_baseline(measured: Sequence[Measured]) -> Sequence[Measured]:
    floats = {one.seed for one in measured if one.settings["codec"] == "dense"}
    own = {one.seed for one in measured if one.settings["codec"] != "dense"}
    return [one for one in measured if one.seed in floats & own]


def judge_accuracy(evidence: Evidence) -> Judgement:
    """The setting with the best mean among those run with the most seeds: level, near or neither."""
    codecs = {one.settings["codec"] for one in evidence.measured} - {"dense"}
    dense = {one.seed: one.result["accuracy"] for one in evidence.where(codec="dense").measured}
    differences = {
        codec: evidence.where(codec=codec).values(lambda one: one.result["accuracy"] - dense[one.seed])
        for codec in codecs
    }
    most = max(len(spread.values) for spread in differences.values())
    best = max((c for c in codecs if len(differences[c].values) == most), key=lambda c: differences[c].mean)
    mean, fewer = differences[best].mean, evidence.where(codec=best).values(fewer_bytes).mean
    others = ", ".join(f"{c}: {points_spread(differences[c])}" for c in sorted(codecs - {best}))
    measured = (
        f"{best}: {points_spread(differences[best])} points against float, {most} seeds, {fewer:.1f} times "
        "fewer bytes" + (f"; {others}" if others else "")
    )
    return Judgement(measured, graded(mean >= LEVEL, mean >= NEAR))


CLAIMS = (
    Claim(
        id="gradiveq-accuracy",
        paper="GradiVeQ",
        place="abstract",
        text="Compressing by 8 costs no noticeable accuracy.",
        scaled_down=(
            "CIFAR-10 with a residual net of 0.52 M parameters, 4 virtual workers, 7 epochs (paper: "
            "CIFAR-100, ResNet-32 and VGG-16, to convergence)"
        ),
        study=Recorded(
            ACCURACY_FILE,
            'thinwire compare cifar10-study --seeds 3 --network virtual --data DIR --codecs "ddp,gradiveq:8" '
            f"--records docs/records/{ACCURACY_FILE}",
            read_accuracies,
        ),
        judge=judge_accuracy,
    ),
    Claim(
        id="gradiveq-qsgd",
        paper="GradiVeQ",
        place="abstract",
        text="GradiVeQ can be combined with QSGD for further compression.",
        scaled_down=(
            f"{SCALED_DOWN}; all layers, slices of a row (paper: convolutions of ResNet-32 on CIFAR-100)"
        ),
        study=Trainings([mnist_recipe(codec) for codec in (ALONE, CHAINED)]),
        judge=judge_chain,
    ),
)
