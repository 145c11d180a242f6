"""FFT sparsification: errors of single gradients, its number format, and training by theta."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from thinwire_lab.claims.claim import Claim, Evidence, Judgement, graded, points_spread
from thinwire_lab.claims.gradient_studies import CompressedGradients
from thinwire_lab.claims.training_studies import SCALED_DOWN, STEPS, Trainings, mnist_recipe
from thinwire_lab.study.findings import FFT, RIVALS

if TYPE_CHECKING:
    from matplotlib.figure import Figure


STUDY = CompressedGradients(("mnist", "cifar10:cifarnet", "shakespeare"), steps=60)
ERRORS_SCALED_DOWN = (
    "LeNet on MNIST, CifarNet on CIFAR-10 and a character transformer, 60 steps each, one gradient early, "
    "midway and late (paper: AlexNet on ImageNet, ResNet-32 on CIFAR-10); rivals in our implementation"
)
NOT_RIVALS = ("rangefloat",)


def gradients(evidence: Evidence) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every gradient that was looked at, with the name of its task."""
    for one in evidence.measured:
        for moment in one.result["moments"]:
            yield one.settings["task"], moment


def duels(evidence: Evidence) -> dict[tuple[str, float], list[float]]:
    """By rival and bits: the error of the better FFT over the rival's, on every gradient."""
    found: dict[tuple[str, float], list[float]] = {}
    for _, moment in gradients(evidence):
        met = [error for error in moment["errors"] if error["meets"]]
        for rival in (error for error in met if error["method"] in RIVALS):
            ours = [e["error"] for e in met if e["target"] == rival["target"] and e["method"] in FFT]
            if ours:
                found.setdefault((rival["method"], rival["target"]), []).append(min(ours) / rival["error"])
    return found


def judge_errors(evidence: Evidence) -> Judgement:
    """Reproduced if FFT errs less than every rival on every gradient at all equal bits."""
    by_rival: dict[str, list[float]] = {}
    for (rival, _), ratios in duels(evidence).items():
        by_rival.setdefault(rival, []).extend(ratios)
    wins = {rival: sum(ratio < 1 for ratio in ratios) for rival, ratios in by_rival.items()}
    measured = "FFT errs less than " + ", ".join(
        f"{rival} in {wins[rival]} of {len(ratios)}" for rival, ratios in by_rival.items()
    )
    always = [rival for rival, ratios in by_rival.items() if wins[rival] == len(ratios)]
    because = f"always only against {', '.join(always)}" if always else "against no rival always"
    holds = len(always) == len(by_rival)
    return Judgement(measured, graded(holds, bool(always)), "" if holds else because)


def format_ratios(evidence: Evidence) -> dict[tuple[int, str], list[float]]:
    """By bits and format: the range float's error over the other's."""
    found: dict[tuple[int, str], list[float]] = {}
    for _, moment in gradients(evidence):
        ours = {f["bits"]: f["error"] for f in moment["formats"] if f["format"] in NOT_RIVALS}
        for other in (f for f in moment["formats"] if f["format"] not in NOT_RIVALS):
            found.setdefault((other["bits"], other["format"]), []).append(
                ours[other["bits"]] / other["error"]
            )
    return found


def judge_formats(evidence: Evidence) -> Judgement:
    """Reproduced if a range float errs less than every other format of as many bits on every gradient."""
    ratios = format_ratios(evidence)
    won = {key: sum(ratio < 1 for ratio in own) for key, own in ratios.items()}
    lost = [
        f"{name} at {bits} bits ({len(own) - won[bits, name]} of {len(own)})"
        for (bits, name), own in ratios.items()
        if won[bits, name] < len(own)
    ]
    eight = [
        ratio for (bits, name), own in ratios.items() if (bits, name) == (8, "e4m3 scaled") for ratio in own
    ]
    measured = (
        f"errs less in {sum(won.values())} of {sum(map(len, ratios.values()))} comparisons; at 8 bits "
        f"{min(eight):.2f} to {max(eight):.2f} times the error of scaled e4m3"
    )
    because = f"loses to {', '.join(lost)}" if lost else ""
    return Judgement(measured, graded(not lost, any(won.values())), because)


def plot_errors(evidence: Evidence, figure: Figure) -> None:
    """FFT's error over each rival's; a dot for every gradient."""
    axes = figure.subplots()
    found = dict(sorted(duels(evidence).items()))
    for row, ratios in enumerate(found.values()):
        axes.plot(ratios, [row] * len(ratios), "o", ms=4, color="#0072b2", alpha=0.5)
    axes.axvline(1, color="#374151", lw=1)
    axes.set_yticks(range(len(found)), [f"{rival}, {bits:g} bit" for rival, bits in found])
    axes.set(xscale="log", xlabel="FFT's error over theirs: left of 1 FFT errs less")
    axes.set_xticks([0.1, 0.2, 0.5, 1, 2], ["0.1", "0.2", "0.5", "1", "2"])
    axes.minorticks_off()


def plot_formats(evidence: Evidence, figure: Figure) -> None:
    """The range float's error over that of the others."""
    axes = figure.subplots()
    found = dict(sorted(format_ratios(evidence).items()))
    for row, ratios in enumerate(found.values()):
        axes.plot(ratios, [row] * len(ratios), "o", ms=4, color="#0072b2", alpha=0.5)
    axes.axvline(1, color="#374151", lw=1)
    axes.set_yticks(range(len(found)), [f"{name}, {bits} bit" for bits, name in found])
    axes.set(xscale="log", xlabel="range float's error over theirs: left of 1 it errs less")
    axes.set_xticks([0.01, 0.1, 0.5, 1, 2], ["0.01", "0.1", "0.5", "1", "2"])
    axes.minorticks_off()


ERROR_CLAIMS = (
    Claim(
        id="fft-errors",
        paper="FFT sparsification",
        place="abstract",
        text="At the same number of bits FFT sparsification errs less than top-k, TernGrad and QSGD.",
        scaled_down=ERRORS_SCALED_DOWN,
        study=STUDY,
        judge=judge_errors,
        plot=plot_errors,
    ),
    Claim(
        id="fft-rangefloat",
        paper="FFT sparsification",
        place="section on range-based floats",
        text="The range-based float errs less on gradients than other formats of as many bits.",
        scaled_down=ERRORS_SCALED_DOWN,
        study=STUDY,
        judge=judge_formats,
        plot=plot_formats,
    ),
)


LEVEL = -0.005
RECOVERED = 0.8  # of what was lost
CONSTANT = "fft:0.99 @ feedback=none"
DIMINISHING = f"{CONSTANT} schedule=diminish"
RUINED = "fft:0.9995 @ feedback=none"
LOWERED = f"{RUINED} schedule=steps:0=1/{STEPS // 2}=0"


def judge_diminishing(evidence: Evidence) -> Judgement:
    """Reproduced if a diminishing theta is level with float; partly if it is better than a constant one."""
    dense = evidence.where(codec="dense")
    constant = evidence.where(codec=CONSTANT).minus(dense, "accuracy")
    diminishing = evidence.where(codec=DIMINISHING).minus(dense, "accuracy")
    measured = (
        f"theta 0.99 without memory: {points_spread(constant)} points against float if constant, "
        f"{points_spread(diminishing)} if it falls with the learning rate"
    )
    return Judgement(measured, graded(diminishing.mean >= LEVEL, diminishing.mean > constant.mean))


def judge_recovery(evidence: Evidence) -> Judgement:
    """Reproduced if 80 % of what was lost comes back; partly if a half."""
    dense = evidence.where(codec="dense")
    ruined = evidence.where(codec=RUINED).minus(dense, "accuracy")
    lowered = evidence.where(codec=LOWERED).minus(dense, "accuracy")
    share = 1 - lowered.mean / ruined.mean
    measured = (
        f"theta 0.9995 throughout: {points_spread(ruined)} points against float; lowered to 0 midway: "
        f"{points_spread(lowered)}"
    )
    return Judgement(
        measured, graded(share >= RECOVERED, share >= 0.5), f"{share:.0%} of the loss comes back"
    )


def plot(evidence: Evidence, figure: Figure) -> None:
    """Training losses of all runs."""
    axes = figure.subplots()
    looks = {
        RUINED: ("#d55e00", "0.9995"),
        LOWERED: ("#0072b2", "0.9995, then 0"),
        "dense": ("#6b7280", "float"),
    }
    for codec, (colour, label) in looks.items():
        for one in evidence.where(codec=codec).measured:
            steps, losses = zip(*one.result["losses"], strict=True)
            axes.plot(
                steps, losses, lw=1, color=colour, label=label if one.seed == evidence.seeds[0] else None
            )
    axes.set(xlabel="step", ylabel="training loss", ylim=(0, 2.5))
    axes.legend(frameon=False)


THETA_CLAIMS = (
    Claim(
        id="fft-diminishing-theta",
        paper="FFT sparsification",
        place="abstract, convergence",
        text="With a diminishing theta training converges as plain SGD does.",
        scaled_down=f"{SCALED_DOWN} (paper: AlexNet on ImageNet, ResNet-32 on CIFAR-10)",
        study=Trainings([mnist_recipe(codec) for codec in ("dense", CONSTANT, DIMINISHING)]),
        judge=judge_diminishing,
    ),
    Claim(
        id="fft-recovery",
        paper="FFT sparsification",
        place="abstract",
        text="Accuracy that was lost to a large theta comes back when theta is lowered.",
        scaled_down=f"{SCALED_DOWN}; theta is lowered after half of them, by a schedule",
        study=Trainings([mnist_recipe(codec) for codec in ("dense", RUINED, LOWERED)]),
        judge=judge_recovery,
        plot=plot,
    ),
)
