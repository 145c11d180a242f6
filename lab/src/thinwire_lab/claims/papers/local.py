"""Claims about few bytes without an all-reduce in every step: SparseLoCo's and DeMo's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import thinwire as tw
from thinwire.tensors import Spec
from thinwire_lab.claims.claim import (
    Claim,
    ClaimRun,
    ClaimStudy,
    Evidence,
    Judgement,
    Measured,
    Recorded,
    Result,
    Tell,
    Verdict,
    graded,
)
from thinwire_lab.run.records import RunRecords

SPARSE, DENSE = "sparseloco", "dense"
DEMO_LIKE = "topk:k=32,chunk=4096"
SHAPE, FEW, MORE = (4096, 1024), 2, 4  # workers; of two each sends exactly one payload
FP32_BITS = 32
PAPER_BITS, PAPER_TIMES, DEMO_TIMES = 0.22, 146.0, 85.0
COMPUTED = "bytes are computed by the plan, which equals what is sent to the byte: nothing is drawn at random"
LEVEL, NEAR = 0.0, 0.05  # nats against dense local steps
ROUND, OUTER = 30, "1/0"
SPARSE_RUN = f"{SPARSE} @ every={ROUND} outer={OUTER}"
DENSE_RUN = f"{DENSE} @ every={ROUND} outer=0.9/0.5"
BATCH, STEPS = 8, 2000


class PlannedBytes(ClaimStudy):
    """What one worker sends in an exchange of a matrix of 4 million elements."""

    def __init__(self, codec: str) -> None:
        self.codec = codec

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [
            ClaimRun("plan", {"codec": self.codec, "shape": list(SHAPE), "workers": workers}, seed)
            for workers in (FEW, MORE)
        ]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        model = tw.Model((Spec("weight", tuple(run.settings["shape"])),))
        policy = tw.Policy.of(run.settings["codec"], keep_dense=())
        plan = tw.Plan.of(policy, model, run.settings["workers"])
        sent = sum(plan.tensor_bytes().values())
        return {"bytes": sent, "dense_bytes": plan.dense_bytes, "elements": math.prod(run.settings["shape"])}


def bits_of(evidence: Evidence, workers: int) -> float:
    """Bits that one worker sends for each element."""
    (one,) = evidence.where(workers=workers).measured
    return 8 * float(one.result["bytes"]) / float(one.result["elements"])


def fewer_of(evidence: Evidence, workers: int) -> float:
    """Times fewer bytes than a ring all-reduce of fp32 among as many."""
    (one,) = evidence.where(workers=workers).measured
    return float(one.result["dense_bytes"]) / float(one.result["bytes"])


def told_bytes(evidence: Evidence) -> str:
    bits = bits_of(evidence, FEW)
    return (
        f"{bits:.3f} bits an element in a payload, {FP32_BITS / bits:.0f} times fewer than fp32; with {MORE} "
        f"workers a worker sends {bits_of(evidence, MORE):.2f} bits an element, "
        f"{fewer_of(evidence, MORE):.0f} times fewer than a ring all-reduce of fp32"
    )


def judge_sparse_bytes(evidence: Evidence) -> Judgement:
    """Reproduced if a payload has at most 0.22 bits an element."""
    bits = bits_of(evidence, FEW)
    holds = bits <= PAPER_BITS and FP32_BITS / bits >= PAPER_TIMES
    return Judgement(
        told_bytes(evidence),
        graded(holds, bits <= 2 * PAPER_BITS),
        "indices are written by Elias and Fano's code instead of 12 bits each; payloads are gathered, so "
        "what a worker sends grows with the workers",
    )


def judge_demo(evidence: Evidence) -> Judgement:
    """Always untestable: the wire of as many values is computed, the optimizer is not built."""
    return Judgement(
        f"`{DEMO_LIKE}`, as many fp32 values of chunks as large: {told_bytes(evidence)}",
        Verdict.UNTESTABLE,
        "DeMo is an optimizer of its own (decoupled momentum, cosine transforms, the sign of the mean) and "
        "is not built here; 32 values of 32 bits with indices of 16 bits in 4,096 are "
        f"{DEMO_TIMES:.0f} times fewer by arithmetic",
    )


def read_local(path: Path) -> Sequence[Measured]:
    """Losses of the long text study, of seeds in which both runs were made."""
    found = {
        (recipe.codec, recipe.seed): outcome.test_loss
        for recipe, outcome in RunRecords(path).runs()
        if (recipe.batch, recipe.steps) == (BATCH, STEPS)
    }
    both = [seed for codec, seed in found if codec == SPARSE_RUN and (DENSE_RUN, seed) in found]
    return [
        Measured({"codec": codec}, seed, {"loss": found[codec, seed]})
        for seed in both
        for codec in (SPARSE_RUN, DENSE_RUN)
    ]


def judge_sparse_quality(evidence: Evidence) -> Judgement:
    """Reproduced if the mean loss is at most dense DiLoCo's; partly if it is at most 0.05 nats above."""
    gap = evidence.where(codec=SPARSE_RUN).minus(evidence.where(codec=DENSE_RUN), "loss")
    measured = f"loss {gap.mean:+.3f} ± {gap.deviation:.3f} nats against dense local steps"
    return Judgement(measured, graded(gap.mean <= LEVEL, gap.mean <= NEAR))


CLAIMS = (
    Claim(
        "sparseloco-bytes",
        "SparseLoCo",
        "section 3",
        "64 of 4,096 elements in two bits take 0.22 bits a parameter and round, 146 times fewer than fp32.",
        "nothing: a matrix of 4,096 x 1,024, exact bytes",
        PlannedBytes(SPARSE),
        judge_sparse_bytes,
        why_no_seeds=COMPUTED,
    ),
    Claim(
        "sparseloco-accuracy",
        "SparseLoCo",
        "abstract",
        "With 1 to 3 % of the elements in two bits SparseLoCo outperforms full-precision DiLoCo.",
        f"a character transformer of 0.6 M parameters, {STEPS} steps, so {STEPS // ROUND} rounds (paper: "
        "0.5 B parameters and more, hundreds of rounds); 4 virtual workers",
        Recorded(
            "local-shakespeare.jsonl",
            "thinwire compare shakespeare-long --seeds 3 --network virtual "
            f'--codecs "{DENSE_RUN},{SPARSE_RUN}"',
            read_local,
        ),
        judge_sparse_quality,
    ),
    Claim(
        "demo-bytes",
        "DeMo",
        "its code",
        "32 of 64 x 64 coefficients travel: 85 times fewer bytes than fp32.",
        "the wire alone: the largest elements instead of cosine coefficients",
        PlannedBytes(DEMO_LIKE),
        judge_demo,
        why_no_seeds=COMPUTED,
    ),
)
