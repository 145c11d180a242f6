"""GradiVeQ in training: its chain with QSGD."""

from __future__ import annotations

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, graded
from thinwire_lab.claims.points import points_spread
from thinwire_lab.claims.studies.mnist_recipe import SCALED_DOWN, mnist_recipe
from thinwire_lab.claims.studies.training import Trainings, fewer_bytes

LEVEL = -0.005
ALONE = "gradiveq:8,layers=all,slice=row,sample=50,compress=250"
CHAINED = f"{ALONE} >> qsgd:8"


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


CLAIMS = (
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
