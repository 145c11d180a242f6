"""The summary of a record: its title, several records as one, codecs compared, and tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from thinwire.errors import LabError
from thinwire.texts import counted
from thinwire_lab.data.task import ACCURACY
from thinwire_lab.report.record import Record, Row, RunOutcome
from thinwire_lab.spread import Spread

LONGEST = 60  # characters
VARIED = ("codec", "seed")  # entries of a recipe in which the runs of one record differ


def title_of(record: Record) -> str:
    """The title as given, or the number of codecs compared if it is too long for a line."""
    title = record.origin.title
    num_codecs = len({outcome.asked for outcome in record.outcomes})
    return title if len(title) <= LONGEST else f"{counted(num_codecs, 'codec')} on {_task(record)}"


def _task(record: Record) -> str:
    recipe = record.origin.recipe
    return f"{recipe['task']} ({recipe['model']})"


def merge(records: Mapping[str, Record]) -> Record:
    """The runs of all records, by the names of their folders.

    Runs of one codec are seeds of it if their recipes agree and no seed is there twice; else a codec that is
    in several folders is named with its folder: "terngrad (demo-2)".
    """
    _check_one_task(records)
    as_seeds = _recipes_agree(records) and _seeds_differ(records)
    homes = Counter(codec for record in records.values() for codec in {o.asked for o in record.outcomes})
    outcomes, rows = [], dict[str, list[Row]]()
    for folder, record in records.items():
        for outcome in record.outcomes:
            single = as_seeds or homes[outcome.asked] == 1
            asked = outcome.asked if single else f"{outcome.asked} ({folder})"
            label = f"{asked}, seed {outcome.seed}"
            outcomes.append(replace(outcome, asked=asked, label=label))
            rows[label] = record.rows[outcome.label]
    first = next(iter(records.values())).origin
    num_codecs = len({outcome.asked for outcome in outcomes})
    title = f"{counted(num_codecs, 'codec')} on {first.recipe['task']}"
    command = "; ".join(record.origin.command for record in records.values())
    return Record(replace(first, title=title, command=command), tuple(outcomes), rows)


def _check_one_task(records: Mapping[str, Record]) -> None:
    tasks = {folder: record.origin.recipe["task"] for folder, record in records.items()}
    if len(set(tasks.values())) > 1:
        told = ", ".join(f"{folder}: {task}" for folder, task in tasks.items())
        raise LabError(f"runs of different tasks share no axis ({told}): name folders of one task")


def _recipes_agree(records: Mapping[str, Record]) -> bool:
    def same(recipe: dict[str, Any]) -> dict[str, Any]:
        return {name: value for name, value in recipe.items() if name not in VARIED}

    first, *others = [same(record.origin.recipe) for record in records.values()]
    return all(other == first for other in others)


def _seeds_differ(records: Mapping[str, Record]) -> bool:
    runs = Counter((o.asked, o.seed) for record in records.values() for o in record.outcomes)
    return max(runs.values(), default=0) <= 1


@dataclass(frozen=True)
class ComparedCodec:
    """One codec of a comparison. `ratio` and `speedup` are taken within each seed, then averaged."""

    codec: str
    seeds: int
    metric: str
    score: Spread
    bytes_per_step: float
    ratio: float
    dense_ratio: float  # against a ring all-reduce of fp32 gradients, computed
    step_ms: Spread
    speedup: Spread

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON; of a spread the mean and the standard deviation."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        spreads = {"score": self.score, "step_ms": self.step_ms, "speedup": self.speedup}
        return values | {
            name: {"mean": spread.mean, "deviation": spread.deviation} for name, spread in spreads.items()
        }


def compare_outcomes(outcomes: Sequence[RunOutcome]) -> list[ComparedCodec]:
    """The codecs of a comparison in the order in which codecs were named; the first is the baseline."""
    codecs = list(dict.fromkeys(outcome.asked for outcome in outcomes))
    baseline = {outcome.seed: outcome for outcome in outcomes if outcome.asked == codecs[0]}
    for (
        outcome
    ) in outcomes:  # records of several commands may lack a seed: its run is set against another one
        baseline.setdefault(outcome.seed, outcomes[0])
    return [_compared([o for o in outcomes if o.asked == codec], baseline) for codec in codecs]


def _compared(runs: list[RunOutcome], baseline: dict[int, RunOutcome]) -> ComparedCodec:
    return ComparedCodec(
        codec=runs[0].asked,
        seeds=len(runs),
        metric=runs[0].metric,
        score=Spread.of(run.score for run in runs),
        bytes_per_step=Spread.of(run.bytes_per_step for run in runs).mean,
        ratio=Spread.of(
            baseline[run.seed].bytes_per_step / max(1.0, run.bytes_per_step) for run in runs
        ).mean,
        dense_ratio=Spread.of(run.dense_bytes_per_step / max(1.0, run.bytes_per_step) for run in runs).mean,
        step_ms=Spread.of(run.step_ms for run in runs),
        speedup=Spread.of(baseline[run.seed].step_ms / run.step_ms for run in runs),
    )


def headline(lines: Sequence[ComparedCodec]) -> tuple[list[str], list[list[str]]]:
    """Column heads and rows of the table that sums a comparison up; a single codec is set against fp32."""
    metric = f"{lines[0].metric} %" if lines[0].metric == ACCURACY else lines[0].metric
    if len(lines) == 1:
        return ["codec", metric, "bytes/step", "fewer than fp32 ring", "ms/step"], [_single(lines[0])]
    return ["codec", metric, "bytes/step", "ratio", "ms/step", "speed-up"], [
        _compared_cells(line) for line in lines
    ]


def _single(line: ComparedCodec) -> list[str]:
    return [*_measured(line), f"{line.dense_ratio:.1f}x", _step_ms(line)]


def _compared_cells(line: ComparedCodec) -> list[str]:
    faster = f"{line.speedup.mean:.2f}x" + (f" ± {line.speedup.deviation:.2f}" if line.seeds > 1 else "")
    return [*_measured(line), f"{line.ratio:.1f}x", _step_ms(line), faster]


def _measured(line: ComparedCodec) -> list[str]:
    return [line.codec, _number(line.metric, line.score, line.seeds > 1), byte_count(line.bytes_per_step)]


def _step_ms(line: ComparedCodec) -> str:
    return f"{line.step_ms.mean:.1f}" + (f" ± {line.step_ms.deviation:.1f}" if line.seeds > 1 else "")


def score(metric: str, value: Spread, several: bool) -> str:
    """A score as people read it: accuracy in per cent, anything else as it is."""
    return _number(metric, value, several) + (" %" if metric == ACCURACY else "")


def _number(metric: str, value: Spread, several: bool) -> str:
    factor, digits = (100, 2) if metric == ACCURACY else (1, 3)
    spread = f" ± {factor * value.deviation:.{digits}f}" if several else ""
    return f"{factor * value.mean:.{digits}f}{spread}"


def pace(speedup: Spread) -> str:
    """A speed-up in words; one that is smaller than its spread over seeds is not called a difference."""
    if abs(speedup.mean - 1) <= max(speedup.deviation, 0.005):
        return "as fast within the spread"
    return f"{speedup.mean:.2f}x faster" if speedup.mean > 1 else f"{1 / speedup.mean:.2f}x slower"


def fewer(ratio: float) -> str:
    """A ratio of bytes in words."""
    return f"{ratio:.1f}x fewer" if ratio >= 1 else f"{1 / ratio:.1f}x more"


def byte_count(count: float) -> str:
    """Bytes with a decimal unit and three digits: 907,836 becomes 908 kB, 80,020 becomes 80.0 kB."""
    for unit, size in (("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if count >= size:
            digits = 2 if count < 10 * size else 1 if count < 100 * size else 0
            return f"{count / size:.{digits}f} {unit}"
    return f"{count:.0f} B"
