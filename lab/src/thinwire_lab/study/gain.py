"""A gain: how much faster a step was on some links than with plain DDP, from the lines of `bench grid`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thinwire.errors import LabError

BASE = "ddp"


@dataclass(frozen=True)
class Gain:
    """One hook of the grid, link by link."""

    hook: str
    step_ms: tuple[float, ...]
    speedups: tuple[float, ...]
    took: tuple[str, ...] = ()  # what auto took on each link; empty for a codec that somebody named
    quality: str = ""  # that auto was given


def gains_of(
    records: Iterable[Mapping[str, Any]], model: str, workers: int, rates: Sequence[str], hooks: Sequence[str]
) -> list[Gain]:
    """The hooks in the order asked for, plain DDP first whether asked for or not."""
    cells = {record["rate"]: record for record in records if _is_of(record, model, workers)}
    for rate in rates:
        if rate not in cells:
            raise LabError(
                f"the grid has no cell of {model}, {rate}, {workers} workers: measure it, thinwire bench grid"
            )
    chosen = [cells[rate] for rate in rates]
    wanted = [BASE, *(hook for hook in hooks if hook != BASE)]
    for hook in wanted:
        missing = next((cell["rate"] for cell in chosen if hook not in cell["measured_ms"]), None)
        if missing is not None:
            known = ", ".join(chosen[0]["measured_ms"])
            raise LabError(f"the grid did not measure {hook} at {missing}: it has {known}")
    return [_gain(hook, chosen) for hook in wanted]


def _is_of(record: Mapping[str, Any], model: str, workers: int) -> bool:
    return bool(record["model"] == model and record["workers"] == workers)


def _gain(hook: str, cells: Sequence[Mapping[str, Any]]) -> Gain:
    times, speedups = ([cell[what][hook] for cell in cells] for what in ("measured_ms", "speedup_vs_ddp"))
    took = [_taken(cell[hook]["report"]) for cell in cells] if hook == "auto" else []
    return Gain(
        hook,
        tuple(times),
        tuple(speedups),
        tuple(took),
        cells[0].get("auto_quality", "unknown quality") if took else "",
    )


def _taken(report: str) -> str:
    """
    >>> _taken("auto: powersgd:4 from step 58 on, a step takes 125 ms")
    'powersgd:4'
    """
    found = re.search(r"^auto: (.+?) from step", report, re.M)
    return found[1] if found else "nothing yet"
