"""Claims about time: TernGrad's Figure 5, steps, exchanges and trainings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire_lab.claims.claim import (
    Claim,
    ClaimRun,
    ClaimStudy,
    Evidence,
    Judgement,
    Measured,
    Result,
    Tell,
    graded,
)
from thinwire_lab.claims.training_studies import REPETITIONS, ExchangeTimes, StepTimeStudy, TimedTrainings
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


NO_SEEDS = "a model, not a training: nothing is drawn at random"
FIGURE5_SCALED_DOWN = (
    "nothing: the figure is a model, fitted here on its cells of up to 16 GPUs and judged on the others, "
    "which were read off the poster's bars"
)
PAPER_VGG = 2.0
MEDIAN_LIMIT = 0.08


class Figure5(ClaimStudy):
    """The performance model, fitted and judged; takes seconds."""

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        return [ClaimRun("figure 5", {"latency": "assumed"}, seed)]

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        from thinwire_lab.figure5.model import judge

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


FIGURE5 = (
    Claim(
        id="terngrad-figure5",
        paper="TernGrad",
        place="Figure 5",
        text="A performance model gives the throughput of AlexNet, GoogLeNet and VGG-A on up to 512 GPUs.",
        scaled_down=FIGURE5_SCALED_DOWN,
        study=Figure5(),
        judge=judge_figure,
        why_no_seeds=NO_SEEDS,
    ),
    Claim(
        id="terngrad-vgg",
        paper="TernGrad",
        place="section 5, Figure 5",
        text="TernGrad doubles the throughput of VGG-A on 128 nodes with InfiniBand.",
        scaled_down=FIGURE5_SCALED_DOWN,
        study=Figure5(),
        judge=judge_vgg,
        why_no_seeds=NO_SEEDS,
    ),
)


SLOW, FAST = "200mbit", "1gbit"
PAPER_TERNGRAD = 3.04
FFT, TOPK = "fft:0.85", "topk:0.048"  # as many bits as fft
PAPER_FFT = {"ddp": 2.26, "qsgd:4": 1.31, "terngrad": 1.25, TOPK: 1.47}
AGGREGATION, SAME_RATIO = "gradiveq:8", "qsgd:4"
CYCLE = "gradiveq:8,sample=5,compress=20"


def vgg(codec: str) -> Recipe:
    """One cycle of GradiVeQ on a net that is nearly all convolutions."""
    return Recipe(
        "cifar10",
        "vgg",
        epochs=1,
        steps=25,
        batch=16,
        workers=4,
        lr=0.05,
        codec=codec,
        rate=SLOW,
        evaluations=1,
    )


def _range(spread: Spread) -> str:
    return f"{min(spread.values):.2f}x to {max(spread.values):.2f}x"


def judge_terngrad(evidence: Evidence) -> Judgement:
    """Reproduced if 3.04 is reached, partly if TernGrad is faster at all."""
    speedup = evidence.values(lambda one: one.result["speedup"]["terngrad"])
    floor = evidence.values(lambda one: one.result["step_ms"]["ddp"] / one.result["step_ms"]["none"])
    measured = (
        f"{_range(speedup)} as fast as DDP; without any exchange it would be {floor.mean:.1f}x, since 8 "
        "workers share 2 cores"
    )
    return Judgement(measured, graded(speedup.mean >= PAPER_TERNGRAD, min(speedup.values) > 1))


def step_ms(hook: str) -> Callable[[Measured], float]:
    """The time of a step under a hook."""
    return lambda one: float(one.result["step_ms"][hook])


def fft_factors(evidence: Evidence) -> dict[str, Spread]:
    """How many times as fast as each rival a step with FFT is."""
    own = evidence.values(step_ms(FFT)).values
    rivals = {rival: evidence.values(step_ms(rival)).values for rival in PAPER_FFT}
    return {
        rival: Spread.of(a / b for a, b in zip(times, own, strict=True)) for rival, times in rivals.items()
    }


def judge_fft(evidence: Evidence) -> Judgement:
    """Reproduced if every factor of the paper is reached at one of the rates, partly if DDP is beaten."""
    rates = sorted({str(one.settings["rate"]) for one in evidence.measured})
    by_rate = {rate: fft_factors(evidence.where(rate=rate)) for rate in rates}
    measured = "; ".join(
        f"{rate}: " + ", ".join(f"{factor.mean:.2f}x {rival}" for rival, factor in factors.items())
        for rate, factors in by_rate.items()
    )
    reached = [all(f.mean >= PAPER_FFT[r] for r, f in factors.items()) for factors in by_rate.values()]
    beaten = [factors["ddp"].mean > 1 for factors in by_rate.values()]
    slower = sorted({r for factors in by_rate.values() for r, f in factors.items() if f.mean < 1})
    because = f"slower than {', '.join(slower)} at some rate" if slower else ""
    return Judgement(f"fft:0.85 is {measured}", graded(any(reached), any(beaten)), because)


def judge_aggregation(evidence: Evidence) -> Judgement:
    """Reproduced if more than 5 at both rates, partly at one."""
    factors = {
        rate: evidence.where(rate=rate).values(lambda one: one.result["speedup"][AGGREGATION])
        for rate in (SLOW, FAST)
    }
    measured = ", ".join(f"{_range(factor)} at {rate}" for rate, factor in factors.items())
    above = [factor.mean > 5 for factor in factors.values()]
    return Judgement(
        f"{measured} against torch's all_reduce, in the compressed phase", graded(all(above), any(above))
    )


def judge_same_ratio(evidence: Evidence) -> Judgement:
    """Reproduced if at least 1.2 times as fast as QSGD at both rates, partly if faster at one."""
    factors = {
        rate: evidence.where(rate=rate).values(
            lambda one: one.result["time_ms"][SAME_RATIO] / one.result["time_ms"][AGGREGATION]
        )
        for rate in (SLOW, FAST)
    }
    measured = ", ".join(f"{_range(factor)} at {rate}" for rate, factor in factors.items())
    means = [factor.mean for factor in factors.values()]
    return Judgement(f"gradiveq:8 is {measured} as fast as qsgd:4", graded(min(means) >= 1.2, max(means) > 1))


def judge_end_to_end(evidence: Evidence) -> Judgement:
    """Reproduced if at least 45 % of the time is saved, partly if a quarter is."""
    times = [evidence.where(codec=codec).result("seconds") for codec in ("ddp", CYCLE)]
    saved = Spread.of(1 - own / ddp for ddp, own in zip(times[0].values, times[1].values, strict=True))
    measured = (
        f"{min(saved.values):.0%} to {max(saved.values):.0%} of the training time saved, the dense phase "
        f"included ({times[0].mean:.0f} s against {times[1].mean:.0f} s)"
    )
    return Judgement(measured, graded(saved.mean >= 0.45, saved.mean >= 0.25))


def plot_fft(evidence: Evidence, figure: Figure) -> None:
    """Bars of step times, by rate."""
    rates = sorted({str(one.settings["rate"]) for one in evidence.measured})
    names = [*PAPER_FFT, FFT]
    grid = figure.subplots(1, len(rates), squeeze=False)
    for axes, rate in zip(grid[0], rates, strict=True):
        own = evidence.where(rate=rate)
        for row, name in enumerate(names):
            times = own.values(step_ms(name))
            axes.barh(row, times.mean, color="#0072b2" if name == FFT else "#9ca3af")
            axes.plot(times.values, [row] * len(times.values), "k.", ms=4)
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_title(rate, fontsize=9, loc="left")
        axes.set(xlabel="ms a step")


EXCHANGE = ExchangeTimes(4, (AGGREGATION, SAME_RATIO), ((SLOW, 4), (FAST, 8)))
EXCHANGE_SCALED_DOWN = (
    f"4 hosts on one machine, 26 MB, 200 Mbit/s and 1 Gbit/s (paper: CPU nodes of a cluster); {REPETITIONS}"
)

TERNGRAD = (
    Claim(
        id="terngrad-speedup",
        paper="TernGrad",
        place="section 5, Figure 5",
        text="AlexNet on 8 workers with Ethernet trains 3.04 times as fast.",
        scaled_down=(
            "AlexNet's shape of 5.8 M parameters (paper: 61 M), batch 16, 8 hosts, 1 Gbit/s; the paper's "
            f"figure is of a model; {REPETITIONS}"
        ),
        study=StepTimeStudy("alexnet", 8, ("terngrad",), ((FAST, 6),)),
        judge=judge_terngrad,
    ),
)
GRADIVEQ = (
    Claim(
        id="gradiveq-aggregation",
        paper="GradiVeQ",
        place="abstract",
        text="Aggregating gradients takes more than 5 times less wall-clock time.",
        scaled_down=EXCHANGE_SCALED_DOWN,
        study=EXCHANGE,
        judge=judge_aggregation,
    ),
    Claim(
        id="gradiveq-against-qsgd",
        paper="GradiVeQ",
        place="abstract",
        text="At the same compression ratio the speed-up is much higher than QSGD's.",
        scaled_down=EXCHANGE_SCALED_DOWN,
        study=EXCHANGE,
        judge=judge_same_ratio,
    ),
    Claim(
        id="gradiveq-end-to-end",
        paper="GradiVeQ",
        place="abstract",
        text="Training takes almost 50 % less time from end to end.",
        scaled_down=(
            "a VGG-like net of 3.9 M parameters on CIFAR-10, 4 hosts, 200 Mbit/s, 25 steps: one cycle of 5 "
            f"dense and 20 compressed steps (paper: CIFAR-100, whole trainings); {REPETITIONS}"
        ),
        study=TimedTrainings((vgg("ddp"), vgg(CYCLE))),
        judge=judge_end_to_end,
    ),
)
FFT_CLAIMS = (
    Claim(
        id="fft-speedup",
        paper="FFT sparsification",
        place="abstract",
        text=(
            "AlexNet on 8 GPUs: 2.26 times as fast as without compression, 1.31 as QSGD, 1.25 as TernGrad, "
            "1.47 as top-k."
        ),
        scaled_down=(
            "AlexNet's shape of 5.8 M parameters, batch 16, 4 hosts, 100 Mbit/s and 1 Gbit/s, no GPU "
            f"(paper: InfiniBand); {REPETITIONS}"
        ),
        study=StepTimeStudy("alexnet", 4, ("qsgd:4", "terngrad", TOPK, FFT), (("100mbit", 2), (FAST, 5))),
        judge=judge_fft,
        plot=plot_fft,
    ),
)
