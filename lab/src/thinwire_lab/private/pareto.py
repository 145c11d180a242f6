"""Pareto: the recorded runs of a study as a table, a sentence and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean, stdev
from typing import Any

from thinwire.errors import LabError

Row = dict[str, Any]
COLOURS = {"uniform": "#6b7280", "search": "#d55e00"}
NAMES = {"uniform": "uniform bit widths", "search": "found by the search"}


@dataclass(frozen=True)
class Point:
    """The runs of one kind beside one rival: bytes and accuracies, by seed."""

    kind: str
    rival: str
    num_bytes: float
    accuracies: dict[int, float]

    @property
    def accuracy(self) -> float:
        """The mean over seeds."""
        return mean(self.accuracies.values())

    @property
    def deviation(self) -> float:
        """The standard deviation over seeds."""
        return stdev(self.accuracies.values()) if len(self.accuracies) > 1 else 0.0


def alike(rows: Sequence[Row], epochs: float, float_epochs: float, measure: str) -> list[Row]:
    """Of recorded runs those of equal training, searches by one measure; of two of a kind the newer."""
    newest = {
        tuple(row[name] for name in ("task", "net", "rival", "kind", "seed")): row
        for row in rows
        if (row["epochs"], row["float_epochs"]) == (epochs, float_epochs)
        and row.get("measure", measure) == measure
    }
    return list(newest.values())


def points(rows: Sequence[Row], task: str, net: str) -> list[Point]:
    """The points of a task and network, cheapest rival first."""
    found: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if (row["task"], row["net"]) == (task, net):
            found.setdefault((row["rival"], row["kind"]), []).append(row)
    if not found:
        raise LabError(f"no run of {net} on {task} is recorded: run `thinwire private pareto {task}` first")
    made = [
        Point(kind, rival, mean(row["bytes"] for row in own), {row["seed"]: row["accuracy"] for row in own})
        for (rival, kind), own in found.items()
    ]
    prices = {point.rival: point.num_bytes for point in made if point.kind == "uniform"}
    return sorted(made, key=lambda point: (prices.get(point.rival, point.num_bytes), point.kind == "search"))


def table(found: Sequence[Point]) -> tuple[list[str], list[list[str]]]:
    """Heads and rows: one line per rival width and kind."""
    heads = ["widths", "kind", "MB per picture", "accuracy %", "seeds"]
    rows = [
        [
            point.rival,
            point.kind,
            f"{point.num_bytes / 1e6:.2f}",
            f"{100 * point.accuracy:.2f}" + (f" ± {100 * point.deviation:.2f}" if point.deviation else ""),
            str(len(point.accuracies)),
        ]
        for point in found
    ]
    return heads, rows


def verdict(found: Sequence[Point]) -> str:
    """What the comparison says, seed by seed, at the bytes of each rival."""
    by_kind = {(point.rival, point.kind): point for point in found}
    sentences = []
    for rival in dict.fromkeys(point.rival for point in found):
        ours, theirs = by_kind.get((rival, "search")), by_kind.get((rival, "uniform"))
        if ours is None or theirs is None:
            continue
        seeds = sorted(ours.accuracies.keys() & theirs.accuracies.keys())
        gains = [100 * (ours.accuracies[seed] - theirs.accuracies[seed]) for seed in seeds]
        won, lost = sum(gain > 0 for gain in gains), sum(gain < 0 for gain in gains)
        sentences.append(
            f"at the bytes of {rival} the search is {mean(gains):+.2f} points beside it "
            f"(better on {won}, worse on {lost} of {len(gains)} seeds)"
        )
    return "; ".join(sentences)


def picture(found: Sequence[Point], title: str, path: Path) -> None:
    """Accuracy against megabytes, a line per kind through the means, a dot per seed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7.2, 4.2), layout="constrained")
    for kind, colour in COLOURS.items():
        own = sorted((point for point in found if point.kind == kind), key=lambda point: point.num_bytes)
        if not own:
            continue
        x = [point.num_bytes / 1e6 for point in own]
        axes.plot(x, [100 * point.accuracy for point in own], "o-", color=colour, label=NAMES[kind])
        for index, (place, point) in enumerate(zip(x, own, strict=True)):
            heights = [100 * value for value in point.accuracies.values()]
            axes.plot([place] * len(heights), heights, "_", color=colour, alpha=0.6, markersize=9)
            if kind == "uniform":
                at = (place, 100 * point.accuracy)
                offset = (4, -13) if index % 2 else (4, 7)  # neighbours' names do not meet
                axes.annotate(point.rival, at, offset, textcoords="offset points", fontsize=8, color=colour)
    axes.set_xlabel("MB per private picture (both directions, set-up not counted)")
    axes.set_ylabel("test accuracy in %")
    axes.set_title(title, loc="left", fontsize=11)
    axes.grid(color="#eef0f3")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
