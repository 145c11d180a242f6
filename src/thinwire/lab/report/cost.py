"""A cost: what a codec loses against the baseline, seed by seed, from the lines of `compare --records`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from thinwire.errors import LabError
from thinwire.lab.report.merged import VARIED
from thinwire.lab.report.outcome import Outcome
from thinwire.lab.spread import Spread

BASE = "ddp"
Run = tuple[dict[str, Any], Outcome]  # a recipe, and what came of it


@dataclass(frozen=True)
class Cost:
    """One codec. `change` is its score less the baseline's of the same seed; `ratio` how many fewer bytes."""

    codec: str
    score: Spread
    change: Spread
    ratio: float


@dataclass(frozen=True)
class Costs:
    """The codecs of one recipe, the baseline first."""

    recipe: dict[str, Any]
    metric: str
    steps: int
    rows: tuple[Cost, ...]


def costs_of(runs: Sequence[Run], codecs: Sequence[str] = (), base: str = BASE) -> Costs:
    """The named codecs, or all; only runs that differ from the last one of the baseline in codec and seed.

    A seed counts if the baseline has it too; of two runs of the same seed the later one counts.
    """
    last = next((recipe for recipe, outcome in reversed(runs) if outcome.asked == base), None)
    if last is None:
        raise LabError(f"no run of the baseline {base} is recorded: compare with --codecs {base},...")
    alike = [outcome for recipe, outcome in runs if _less(recipe) == _less(last)]
    by_codec: dict[str, dict[int, Outcome]] = {base: {}}
    for outcome in alike:
        by_codec.setdefault(outcome.asked, {})[outcome.seed] = outcome
    wanted = [base, *(codec for codec in codecs or by_codec if codec != base)]
    rows = [_cost(codec, by_codec.get(codec, {}), by_codec[base]) for codec in wanted]
    first = alike[-1]
    return Costs(last, first.metric, first.steps, tuple(rows))


def _less(recipe: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in recipe.items() if name not in VARIED}


def _cost(codec: str, own: dict[int, Outcome], base: dict[int, Outcome]) -> Cost:
    seeds = [seed for seed in own if seed in base]
    if not seeds:
        raise LabError(f"no run of {codec} has recipe and seed of a run of the baseline: compare them in one")
    return Cost(
        codec,
        Spread.of(own[seed].score for seed in seeds),
        Spread.of(own[seed].score - base[seed].score for seed in seeds),
        Spread.of(base[s].bytes_per_step / max(1.0, own[s].bytes_per_step) for s in seeds).mean,
    )
