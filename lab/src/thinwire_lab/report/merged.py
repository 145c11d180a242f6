"""Several records as one: runs of one task that were made by several commands, on one page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thinwire.errors import LabError
from thinwire.texts.words import counted
from thinwire_lab.report.outcome import Row
from thinwire_lab.report.record import Record

VARIED = ("codec", "seed")  # entries of a recipe in which the runs of one record differ


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
