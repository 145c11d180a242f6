"""TernGrad's Figure 5: a model of throughput, computed anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from thinwire_lab.claims.claim import Claim
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.judgement import Judgement, graded
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.study import Study, Tell

NO_SEEDS = "a model, not a training: nothing is drawn at random"
SCALED_DOWN = (
    "nothing: the figure is a model, fitted here on its cells of up to 16 GPUs and judged on the others, "
    "which were read off the poster's bars"
)
PAPER_VGG = 2.0
MEDIAN_LIMIT = 0.08


class Figure5(Study):
    """The performance model, fitted and judged; takes seconds."""

    def runs(self, seed: int) -> Sequence[Run]:
        return [Run("figure 5", {"latency": "assumed"}, seed)]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        from thinwire.perf.figure5.judged import judge

        table = judge()
        cells = [
            {
                "cluster": row.cell.cluster,
                "network": row.cell.network,
                "wire": row.cell.wire,
                "gpus": row.cell.gpus,
                "paper": row.cell.images_per_s,
                "model": round(row.images_per_s, 1),
                "role": row.role,
            }
            for row in table.rows
        ]
        return {"cells": cells, "median_error": table.median_error, "outside": len(table.outside)}


def judge_figure(evidence: Evidence) -> Judgement:
    """Reproduced if the median error of held-out cells is at most 8 % and none is 15 % off beyond blur."""
    result = evidence.measured[0].result
    held_out = [cell for cell in result["cells"] if cell["role"] == "held out"]
    measured = (
        f"{len(held_out)} cells predicted: median error {result['median_error']:.1%}, {result['outside']} "
        "further off than 15 % beyond what reading the bars may be off"
    )
    good = result["median_error"] <= MEDIAN_LIMIT
    return Judgement(measured, graded(good and not result["outside"], good))


def judge_vgg(evidence: Evidence) -> Judgement:
    """Reproduced if the model gives VGG-A at 512 GPUs with InfiniBand twice the throughput."""
    own = {
        cell["wire"]: cell
        for cell in evidence.measured[0].result["cells"]
        if (cell["cluster"], cell["network"], cell["gpus"]) == ("InfiniBand", "vgg-a", 512)
    }
    factor, paper = (own["ternary"][whose] / own["float"][whose] for whose in ("model", "paper"))
    measured = f"{factor:.2f}x by the model, {paper:.2f}x on the poster"
    return Judgement(
        measured, graded(factor >= PAPER_VGG, factor > 1), "by the model; no such cluster is at hand"
    )


CLAIMS = (
    Claim(
        id="terngrad-figure5",
        paper="TernGrad",
        place="Figure 5",
        text="A performance model gives the throughput of AlexNet, GoogLeNet and VGG-A on up to 512 GPUs.",
        scaled_down=SCALED_DOWN,
        study=Figure5(),
        judge=judge_figure,
        why_no_seeds=NO_SEEDS,
    ),
    Claim(
        id="terngrad-vgg",
        paper="TernGrad",
        place="section 5, Figure 5",
        text="TernGrad doubles the throughput of VGG-A on 128 nodes with InfiniBand.",
        scaled_down=SCALED_DOWN,
        study=Figure5(),
        judge=judge_vgg,
        why_no_seeds=NO_SEEDS,
    ),
)
