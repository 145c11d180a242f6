"""GradiVeQ: gradients of convolutions are linearly correlated; training with it keeps its accuracy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from thinwire_lab.claims.claim import Claim, Evidence, Judgement, graded, points_spread
from thinwire_lab.claims.gradient_studies import PAPER_SHARE, SHARES, ConvolutionGradients
from thinwire_lab.claims.training_studies import SCALED_DOWN, Trainings, fewer_bytes, mnist_recipe
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure


RATIO = f"{PAPER_SHARE:g}"
STRONG, FEW_LOST = 0.9, 0.05  # of the energy; what a basis may lose in time or in space
AGES = (1, 10, 50, 200)
STUDY = ConvolutionGradients(
    Recipe(
        "cifar10",
        "resnet8-wide",
        epochs=1,
        steps=280,
        batch=32,
        workers=1,
        lr=0.1,
        codec="dense",
        weight_decay=5e-4,
        augment=True,
        evaluations=1,
    ),
    begin=40,
    learn=30,
    ages=AGES,
)
CORRELATION_SCALED_DOWN = (
    "a residual net of 0.66 M parameters on CIFAR-10 (paper: ResNet-32 and VGG-16 on CIFAR-100), 280 steps "
    "of 32 examples; slices of 256, basis learnt in 30 steps and followed for 200 (paper: 512, 100 and 400, "
    "as far as we know)"
)


def captured(evidence: Evidence, *path: str) -> Spread:
    """Captured energy at d = M / 8 of every layer and seed."""
    return Spread.of(
        _at(layer, path)[RATIO] for one in evidence.measured for layer in one.result["layers"].values()
    )


def _at(layer: Any, path: tuple[str, ...]) -> Any:
    for name in path:
        layer = layer[name]
    return layer


def _range(spread: Spread) -> str:
    return f"{min(spread.values):.0%} to {max(spread.values):.0%}"


def judge_correlation(evidence: Evidence) -> Judgement:
    """Reproduced if an eighth of the directions holds 90 % of the next step's energy in every layer.

    Partly if it holds twice as much as of the same numbers in random order, everywhere.
    """
    next_step, shuffled = captured(evidence, "by_age", "1"), captured(evidence, "shuffled")
    measured = (
        f"an eighth of the directions captures {_range(next_step)} (median {next_step.median:.0%}) of the "
        f"next gradient's energy, by layer; {_range(shuffled)} of the same numbers shuffled"
    )
    correlated = min(next_step.values) >= 2 * max(shuffled.values)
    because = "correlated, but 8x is not free of loss" if correlated else "not in every layer"
    holds = min(next_step.values) >= STRONG
    return Judgement(
        measured,
        graded(holds, correlated or next_step.median >= 2 * shuffled.median),
        "" if holds else because,
    )


def lost(evidence: Evidence, age: int) -> Spread:
    """How much less an old basis captures than one that was learnt right before, by layer and seed."""
    old, fresh = captured(evidence, "by_age", str(age)), captured(evidence, "fresh_by_age", str(age))
    return Spread.of(a - b for a, b in zip(fresh.values, old.values, strict=True))


def judge_time(evidence: Evidence) -> Judgement:
    """Reproduced if every layer loses at most 5 points of energy in 200 steps; partly if the mean in 50."""
    losses = {age: lost(evidence, age) for age in AGES[1:]}
    measured = "; ".join(
        f"after {age} steps {100 * spread.mean:.1f} points (worst layer {100 * max(spread.values):.1f})"
        for age, spread in losses.items()
    )
    holds = max(losses[200].values) <= FEW_LOST
    return Judgement(
        f"an old basis captures less than a fresh one: {measured}",
        graded(holds, losses[50].mean <= FEW_LOST),
        "" if holds else "it changes, at first slowly",
    )


def judge_space(evidence: Evidence) -> Judgement:
    """Reproduced if a basis loses at most 5 points on slices it was not learnt from, partly in the mean."""
    same, others = captured(evidence, "same_slices"), captured(evidence, "other_slices")
    gaps = Spread.of(a - b for a, b in zip(same.values, others.values, strict=True))
    measured = (
        f"a basis of every other slice captures {_range(others)} of those left out, {100 * gaps.mean:.1f} "
        "points "
        f"less than a basis of all slices does (worst layer {100 * max(gaps.values):.1f})"
    )
    return Judgement(measured, graded(max(gaps.values) <= FEW_LOST, gaps.mean <= FEW_LOST))


def plot_energy(evidence: Evidence, figure: Figure) -> None:
    """Left the spectrum, right captured energy against d / M; a line for every layer and seed."""
    left, right = figure.subplots(1, 2)
    for one in evidence.measured:
        for layer in one.result["layers"].values():
            left.plot(
                range(1, len(layer["spectrum"]) + 1), layer["spectrum"], lw=1, color="#0072b2", alpha=0.6
            )
            right.plot(
                SHARES,
                [layer["by_age"]["1"][f"{s:g}"] for s in SHARES],
                ".-",
                lw=1,
                color="#0072b2",
                alpha=0.6,
            )
            right.plot(
                SHARES, [layer["shuffled"][f"{s:g}"] for s in SHARES], ".:", lw=1, color="#6b7280", alpha=0.6
            )
    left.set(xlabel="eigenvalue", ylabel="share of the variance", yscale="log")
    right.set(xlabel="directions kept, d / M", ylabel="captured energy", ylim=(0, 1), xscale="log")
    right.set_xticks(SHARES, [f"1/{1 / s:.0f}" for s in SHARES])
    right.minorticks_off()
    right.set_title("blue: next step; grey: shuffled", fontsize=9, loc="left")


def plot_time(evidence: Evidence, figure: Figure) -> None:
    """Captured energy at d = M / 8 against the age of the basis, beside that of fresh ones."""
    axes = figure.subplots()
    looks = {
        "by_age": ("#0072b2", ".-", "learnt once"),
        "fresh_by_age": ("#6b7280", ".:", "learnt right before"),
    }
    for key, (colour, style, label) in looks.items():
        layers = [layer[key] for one in evidence.measured for layer in one.result["layers"].values()]
        for k, layer in enumerate(layers):
            energies = [layer[str(age)][RATIO] for age in AGES]
            axes.plot(AGES, energies, style, lw=1, color=colour, alpha=0.7, label=None if k else label)
    axes.set(xlabel="steps since the basis was learnt", ylabel="captured energy at d = M/8", ylim=(0, 1))
    axes.legend(frameon=False)


CORRELATION_CLAIMS = (
    Claim(
        id="gradiveq-correlation",
        paper="GradiVeQ",
        place="section 3, observations",
        text=(
            "Gradients of convolutions are so strongly correlated that an eighth of the directions holds "
            "nearly all of them."
        ),
        scaled_down=CORRELATION_SCALED_DOWN,
        study=STUDY,
        judge=judge_correlation,
        plot=plot_energy,
    ),
    Claim(
        id="gradiveq-time",
        paper="GradiVeQ",
        place="section 3, observations",
        text="The correlation changes slowly: a basis stays good for hundreds of steps (400 in a cycle).",
        scaled_down=CORRELATION_SCALED_DOWN,
        study=STUDY,
        judge=judge_time,
        plot=plot_time,
    ),
    Claim(
        id="gradiveq-space",
        paper="GradiVeQ",
        place="section 3, observations",
        text="All slices of a layer share their correlation: one basis serves them all.",
        scaled_down=CORRELATION_SCALED_DOWN,
        study=STUDY,
        judge=judge_space,
    ),
)


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


TRAINING_CLAIMS = (
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
