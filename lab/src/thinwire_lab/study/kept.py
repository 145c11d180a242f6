"""Kept accuracy: what a codec loses against sending everything, seed by seed, and whether that is little."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.data.task import ACCURACY, BITS_PER_CHARACTER
from thinwire_lab.report.outcome import Outcome
from thinwire_lab.run.recipe import Recipe
from thinwire_lab.spread import Spread

BASELINES = ("ddp", "dense")
SEEDS = 3  # a codec is called kept from so many seeds on
# What a codec may lose on average: half a point of accuracy, 0.02 nats of a character.
ALLOWED: Mapping[str, float] = MappingProxyType({ACCURACY: 0.005, BITS_PER_CHARACTER: 0.02 / math.log(2)})


@dataclass(frozen=True)
class Kept:
    """One codec of a study beside the baseline; a positive difference is better than the baseline."""

    codec: str
    metric: str
    score: Spread
    difference: Spread  # seed by seed
    ratio: float  # times fewer bytes than a ring all-reduce of fp32
    seeds: tuple[int, ...]

    @property
    def verdict(self) -> str:
        """Kept, lost, or what is known of fewer seeds than it takes."""
        level = self.difference.mean >= -ALLOWED[self.metric]
        if len(self.seeds) < SEEDS:
            return f"{'level' if level else 'behind'} ({len(self.seeds)} of {SEEDS} seeds)"
        return "kept" if level else "lost"

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return {
            "codec": self.codec,
            "metric": self.metric,
            "seeds": list(self.seeds),
            "score": self.score.mean,
            "score_deviation": self.score.deviation,
            "difference": self.difference.mean,
            "difference_deviation": self.difference.deviation,
            "ratio": self.ratio,
            "verdict": self.verdict,
        }


@dataclass(frozen=True)
class KeptStudy:
    """All codecs that were run by one recipe, the baseline first, then by how many bytes they save."""

    recipe: Recipe  # of the first run: codec and seed say nothing
    steps: int
    codecs: tuple[Kept, ...]

    @property
    def setting(self) -> str:
        """The recipe in a line."""
        recipe = self.recipe
        return (
            f"{recipe.task}, {recipe.model}, {recipe.workers} workers, batch {recipe.batch} each, "
            f"{recipe.optimizer}, {self.steps} steps"
        )

    def only(self, codecs: Sequence[str]) -> KeptStudy:
        """The baseline and the codecs that are named, in that order; all if none is."""
        by_name = {line.codec: line for line in self.codecs}
        lacking = [codec for codec in codecs if codec not in by_name]
        if lacking:
            raise LabError(f"no run of {lacking[0]} has recipe and seed of a run of ddp: compare them in one")
        named = [by_name[codec] for codec in codecs if codec not in BASELINES]
        return replace(self, codecs=(self.codecs[0], *named)) if named else self


def kept_studies(runs: Iterable[tuple[Recipe, Outcome]]) -> list[KeptStudy]:
    """Runs by recipe; a seed without its baseline is left out, a recipe without any is an error.

    Of two runs of the same codec and seed the later one counts.
    """
    groups: dict[Recipe, list[Outcome]] = {}
    for recipe, outcome in runs:
        groups.setdefault(replace(recipe, codec="", seed=0), []).append(outcome)
    return [_study(recipe, outcomes) for recipe, outcomes in groups.items()]


def _study(recipe: Recipe, outcomes: Sequence[Outcome]) -> KeptStudy:
    baseline = {run.seed: run for run in outcomes if run.asked in BASELINES}
    if not baseline:
        raise LabError(
            f"no run of ddp with the recipe of {outcomes[0].asked} on {recipe.task}: compare with ddp"
        )
    codecs: dict[str, dict[int, Outcome]] = {}
    for run in outcomes:
        if run.seed in baseline:
            codecs.setdefault(run.asked, {})[run.seed] = run
    lines = [_kept(codec, list(runs.values()), baseline) for codec, runs in codecs.items()]
    lines.sort(key=lambda line: (line.codec not in BASELINES, line.ratio))
    return KeptStudy(recipe, outcomes[0].steps, tuple(lines))


def _kept(codec: str, runs: Sequence[Outcome], baseline: Mapping[int, Outcome]) -> Kept:
    metric = runs[0].metric
    better = 1 if metric == ACCURACY else -1
    return Kept(
        codec=codec,
        metric=metric,
        score=Spread.of(run.score for run in runs),
        difference=Spread.of(better * (run.score - baseline[run.seed].score) for run in runs),
        ratio=Spread.of(run.dense_bytes_per_step / max(1.0, run.bytes_per_step) for run in runs).mean,
        seeds=tuple(sorted(run.seed for run in runs)),
    )
