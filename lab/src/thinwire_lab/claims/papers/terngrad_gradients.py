"""TernGrad on single gradients: scales, zeros, histograms and what clipping costs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thinwire_lab.claims.claim import Claim, Evidence, Judgement, graded
from thinwire_lab.claims.gradient_studies import LIMIT, MOMENTS, TernaryGradients
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CONVOLUTION, FIRST_FULL = "conv3.weight", "fc1.weight"
PARTS = ("raw", "clipped", "ternary", "averaged")
PAPER_ZEROS = 0.7132
FEW_BINS = 7
WORKERS = 2
STUDY = TernaryGradients(
    Recipe(
        "cifar10",
        "alexnet",
        epochs=1,
        steps=100,
        batch=16,
        workers=WORKERS,
        lr=1e-3,
        optimizer="adam",
        codec="terngrad",
        evaluations=1,
    ),
    (CONVOLUTION, FIRST_FULL),
)
SCALED_DOWN = (
    "AlexNet's shape for 32x32 pictures (5.8 M parameters) on CIFAR-10 instead of AlexNet on ImageNet, 2 "
    "workers with 16 examples each, 100 steps by Adam (paper: 185,000 and more by SGD), looked at after 5, "
    "50 and 100 % of them"
)


def of_moments(evidence: Evidence, value: Callable[[Mapping[str, Any]], float]) -> Spread:
    """A number of every moment of every seed."""
    return Spread.of(value(moment) for one in evidence.measured for moment in one.result["moments"])


def of_layers(evidence: Evidence, name: str) -> Spread:
    """A figure of both layers at every moment of every seed."""
    return Spread.of(
        layer[name]
        for one in evidence.measured
        for moment in one.result["moments"]
        for layer in moment["layers"].values()
    )


def judge_scales(evidence: Evidence) -> Judgement:
    """Reproduced if a scale for every layer errs less at every moment."""
    ratios = of_moments(evidence, lambda m: m["errors"]["one scale"] / m["errors"]["own scales"])
    own = of_moments(evidence, lambda m: m["errors"]["own scales"])
    measured = (
        f"one scale for all layers errs {min(ratios.values):.2f} to {max(ratios.values):.2f} times as much "
        f"as one for every layer (relative error {own.median:.2f} in the median)"
    )
    return Judgement(
        measured,
        graded(min(ratios.values) > 1, max(ratios.values) > 1),
        "of gradients; no training with one scale was run",
    )


def judge_zeros(evidence: Evidence) -> Judgement:
    """Reproduced within 5 points of 71.32 %, partly if the half of the numbers at least is zero."""
    zeros = of_moments(evidence, lambda m: m["layers"][FIRST_FULL]["zeros"])
    low, high = min(zeros.values), max(zeros.values)
    measured = f"{low:.1%} to {high:.1%} zeros (mean {zeros.mean:.1%}) in the first fully-connected layer"
    return Judgement(
        measured, graded(max(abs(low - PAPER_ZEROS), abs(high - PAPER_ZEROS)) <= 0.05, low >= 0.5)
    )


def judge_histograms(evidence: Evidence) -> Judgement:
    """Reproduced if clipping touches few numbers, trits have 3 values and their mean 2N + 1 at most."""
    clipped = of_layers(evidence, "clipped")
    levels = [
        layer["levels"]
        for one in evidence.measured
        for moment in one.result["moments"]
        for layer in moment["layers"].values()
    ]
    ternary, averaged = {own["ternary"] for own in levels}, {own["averaged"] for own in levels}
    measured = (
        f"{min(clipped.values):.1%} to {max(clipped.values):.1%} of the numbers are clipped; "
        f"{_range(ternary)} levels are sent, the mean of {WORKERS} workers has {_range(averaged)}"
    )
    holds = [max(clipped.values) <= 0.05, ternary == {3}, max(averaged) <= 2 * WORKERS + 1]
    return Judgement(measured, graded(all(holds), any(holds)))


def judge_clipping_cost(evidence: Evidence) -> Judgement:
    """Reproduced if the length changes by at most 1.5 % and the direction by at most 3 degrees."""
    shorter, turned = of_layers(evidence, "shortened"), of_layers(evidence, "turned_degrees")
    measured = (
        f"clipping shortens by {min(shorter.values):.1%} to {max(shorter.values):.1%} and turns by "
        f"{min(turned.values):.1f} to {max(turned.values):.1f} degrees"
    )
    because = "1.1 % and 2.8 degrees are those of a normal gradient; these have heavier tails"
    holds = max(shorter.values) <= 0.015 and max(turned.values) <= 3
    some = min(shorter.values) <= 0.015 or min(turned.values) <= 3
    return Judgement(measured, graded(holds, some), "" if holds else because)


def _range(values: set[int]) -> str:
    return str(min(values)) if len(values) == 1 else f"{min(values)} to {max(values)}"


def plot_histograms(evidence: Evidence, figure: Figure) -> None:
    """Layers down, what happens to a gradient across; of the first seed, the last moment as a solid line."""
    grid: Any = figure.subplots(2, len(PARTS), sharex=True, sharey=True, squeeze=False)
    moments = evidence.measured[0].result["moments"]
    for row, layer in zip(grid, (CONVOLUTION, FIRST_FULL), strict=True):
        for axes, part in zip(row, PARTS, strict=True):
            for moment, style in zip(moments, (":", "--", "-"), strict=True):
                _draw_histogram(axes, moment["layers"][layer]["histograms"][part], style, moment["moment"])
            axes.set_title(f"{layer.split('.')[0]}: {part}", fontsize=9, loc="left")
            axes.tick_params(labelsize=8)
        row[0].set(yscale="log", ylim=(1e-4, 2), yticks=(1e-4, 1e-2, 1))
    grid[1][0].legend(frameon=False, fontsize=6, loc="upper left", handlelength=1.5, borderaxespad=0)
    figure.supxlabel("standard deviations of the raw gradient; outer bins hold all beyond", fontsize=9)
    figure.supylabel("share of the numbers", fontsize=9)


def _draw_histogram(axes: Axes, counts: Sequence[int], style: str, label: str) -> None:
    """A line, or where only a few bins hold anything, what they hold in the end as stems."""
    places = [LIMIT * (2 * (k + 0.5) / len(counts) - 1) for k in range(len(counts))]
    shares = [count / sum(counts) for count in counts]
    if sum(map(bool, counts)) > FEW_BINS:
        axes.plot(places, shares, style, color="#0072b2", lw=1, label=label)
    elif style == "-":
        axes.vlines(places, 0, shares, color="#0072b2", lw=2)


def plot_zeros(evidence: Evidence, figure: Figure) -> None:
    """By moment, a line for every seed and layer."""
    axes = figure.subplots()
    for one in evidence.measured:
        for layer, colour in ((CONVOLUTION, "#e69f00"), (FIRST_FULL, "#0072b2")):
            shares = [100 * moment["layers"][layer]["zeros"] for moment in one.result["moments"]]
            label = layer.split(".")[0] if one.seed == evidence.seeds[0] else None
            axes.plot(list(MOMENTS), shares, ".-", color=colour, label=label)
    axes.axhline(100 * PAPER_ZEROS, color="#6b7280", ls="--", lw=1, label="AlexNet's fc6 in the paper")
    axes.set(ylabel="zeros, percent", ylim=(0, 100))
    axes.legend(frameon=False)


def plot_scales(evidence: Evidence, figure: Figure) -> None:
    """Errors by moment, of own scales and of one."""
    axes = figure.subplots()
    for one in evidence.measured:
        for name, colour in (("one scale", "#d55e00"), ("own scales", "#0072b2")):
            errors = [moment["errors"][name] for moment in one.result["moments"]]
            label = name if one.seed == evidence.seeds[0] else None
            axes.plot(list(MOMENTS), errors, ".-", color=colour, label=label)
    axes.set(ylabel="expected relative error", ylim=(0, None))
    axes.legend(frameon=False)


CLAIMS = (
    Claim(
        id="terngrad-layer-scales",
        paper="TernGrad",
        place="section 3, layer-wise ternarizing",
        text="A scale for every layer makes less noise than one scale for all gradients.",
        scaled_down=SCALED_DOWN,
        study=STUDY,
        judge=judge_scales,
        plot=plot_scales,
    ),
    Claim(
        id="terngrad-zeros",
        paper="TernGrad",
        place="Figure 4c",
        text="71.32 % of the ternary gradients of AlexNet's first fully-connected layer are zero.",
        scaled_down=SCALED_DOWN,
        study=STUDY,
        judge=judge_zeros,
        plot=plot_zeros,
    ),
    Claim(
        id="terngrad-histograms",
        paper="TernGrad",
        place="Figure 2",
        text=(
            "Gradients are bell-shaped, so clipping at 2.5 sigma touches few; 3 levels are sent, and the "
            "mean of N workers has at most 2N + 1."
        ),
        scaled_down=SCALED_DOWN,
        study=STUDY,
        judge=judge_histograms,
        plot=plot_histograms,
    ),
    Claim(
        id="terngrad-clipping-cost",
        paper="TernGrad",
        place="section 3, gradient clipping (poster)",
        text=(
            "Clipping at 2.5 sigma changes a gradient's length by 1 to 1.5 % and its direction by 2 to 3 "
            "degrees."
        ),
        scaled_down=SCALED_DOWN,
        study=STUDY,
        judge=judge_clipping_cost,
    ),
)
