"""`thinwire plan --local`: which number of local steps and which codec reach the end of a run soonest."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from thinwire.cli.forecast import Asked, heading
from thinwire.cli.table import format_table
from thinwire.errors import LabError

if TYPE_CHECKING:
    from thinwire.perf.forecast import Setting
    from thinwire.perf.local_steps import LocalForecast

NOTES = (
    "step: the mean of a round, at equal tokens. gap: nats a character lost to DDP in a text study of 0.6 M",
    "parameters; it depends on model, data and the length of the run. Of steps measured at 20 Mbit/s local",
    "rows were forecast 2 to 11 % too short, qsgd:4 in every step 23 %: docs/background/local-steps.md",
)


def print_local(asked: Asked, as_json: bool) -> None:
    """A row for every codec and number of local steps, the quickest first, and the answer."""
    asked.check()  # names that are misspelt cost no torch
    from thinwire.perf.local_steps import local_forecasts, read_everys, soonest

    setting = asked.setting()
    steps = steps_of(asked, setting)
    found = local_forecasts(asked.asked_codecs(), read_everys(str(asked.local)), setting, asked.ways())
    best = soonest(found)
    if as_json:
        for one in found:
            print(json.dumps(_row(one, found[0], steps, one is best)))
        return
    heads = ("codec", "exchange", "step ms", "speed-up", "MB a step", "gap")
    print(heading(setting))
    print(
        format_table((*heads, "hours") if steps else heads, [_cells(one, found[0], steps) for one in found])
    )
    print(_answer(best, found[0], steps))
    print("\n".join(NOTES))


def steps_of(asked: Asked, setting: Setting) -> int | None:
    """The length of the run: as it was given, or what its tokens are in steps of all workers."""
    if asked.tokens is None:
        return asked.steps
    network, workers = setting.network, setting.topology.workers
    if asked.steps is not None:
        raise LabError("--steps and --tokens both say how long the run is: give one")
    if not asked.tokens > 0:
        raise LabError(f"--tokens {asked.tokens:g} must be a number above 0, as in 2e9")
    if not network.tokens:
        raise LabError(f"an example of {network.name} is one {network.example}, not of tokens: give --steps")
    return max(1, math.ceil(asked.tokens / (network.tokens * network.batch * workers)))


def _hours(one: LocalForecast, steps: int) -> float:
    return steps * one.step_s / 3600


def _row(one: LocalForecast, plain: LocalForecast, steps: int | None, is_best: bool) -> dict[str, object]:
    return {
        "codec": one.codec,
        "every": one.every,
        "step_ms": 1e3 * one.step_s,
        "speedup_vs_ddp": plain.step_s / one.step_s,
        "bytes_per_worker": one.sent_bytes,
        "hours": None if steps is None else _hours(one, steps),
        "studied_gap_nats": one.studied_gap,
        "soonest_studied": is_best,
    }


def _cells(one: LocalForecast, plain: LocalForecast, steps: int | None) -> Sequence[str]:
    gap = one.studied_gap
    return (
        one.codec,
        _way(one),
        f"{1e3 * one.step_s:,.1f}",
        f"{plain.step_s / one.step_s:.2f}x",
        f"{one.sent_bytes / 1e6:,.3f}",
        "not studied" if gap is None else f"{gap:+.3f}",
        *([] if steps is None else [f"{_hours(one, steps):,.2f}"]),
    )


def _way(one: LocalForecast) -> str:
    return "every step (DDP)" if one.every == 1 else f"every {one.every} steps"


def _answer(best: LocalForecast, plain: LocalForecast, steps: int | None) -> str:
    from thinwire.perf.local_steps import ALLOWED

    if best is plain:
        return "soonest of what was studied: DDP itself"
    times = f"{plain.step_s / best.step_s:.1f} times sooner than DDP"
    if steps is not None:
        times = f"{_hours(best, steps):,.2f} hours for {steps:,} steps (DDP {_hours(plain, steps):,.2f})"
    way = "every step" if best.every == 1 else _way(best)
    return f"soonest of what was studied and lost at most {ALLOWED} nats: {best.codec} {way}, {times}"
