"""Made-up runs: what workers would have told, without any."""

from __future__ import annotations

from typing import Any

from thinwire_lab.report.record import Record, RunOutcome, describe, outcome_from_rows
from thinwire_lab.run.recipe import digits

LAYER = {"name": "fc<1>.weight", "numel": 1000, "codec": "terngrad", "bytes_per_step": 600.0}
REPORT = {
    "steps": 20,
    "seconds": {"agree": 0.1, "encode": 0.2, "travel": 0.4, "merge": 0.1, "decode": 0.1},
    "layers": [{**LAYER, "bits_per_element": 4.8, "relative_error": 0.7}],
}


def made_rows(steps: int, step_s: float, best: float, size: float) -> list[dict[str, Any]]:
    rows = []
    for step in range(5, steps + 1, 5):
        seconds = {"seconds": step * step_s, "waited_s": step * step_s / 2}
        place = {"step": step, "epoch": step / 10, **seconds}
        score = best * step / steps
        losses = [1 / (step - 4 + k) for k in range(5)]
        rows.append({"row": "step", **place, "loss": losses[-1], "losses": losses})
        look = {"layer": "fc<1>.weight", "limit": 0.1, "own": [1, 5, 1], "mean": [0, 7, 0]}
        rows.append({"row": "histograms", **place, "layers": [look]})
        scores = {
            "loss": 1 / step,
            "test_loss": 2 / step,
            "accuracy": score,
            "score": score,
            "bytes": size * step,
            "scalars": {"thinwire/ratio": 12.0, "thinwire/seconds_per_step/encode": 0.001},
        }
        rows.append({"row": "evaluation", **place, **scores})
    return rows


def made_outcome(
    codec: str,
    seed: int,
    rows: list[dict[str, Any]],
    step_ms: float,
    size: float,
    report: dict[str, Any] | None,
) -> RunOutcome:
    result = {"row": "result", "steps": 20, "seconds": 2.0, "step_ms": step_ms, "bytes_per_step": size}
    result |= {"bytes_source": "interface counters", "dense_bytes_per_step": 13e5}
    result |= {"parameters": "abc", "report": report}
    return outcome_from_rows(f"{codec}, seed {seed}", codec, codec, seed, "accuracy", [*rows, result])


def made_record(codecs: tuple[str, ...] = ("ddp", "terngrad"), seeds: tuple[int, ...] = (0, 1)) -> Record:
    """The first codec is plain DDP, slow and large; the others went through thinwire."""
    outcomes, rows = [], {}
    for seed in seeds:
        for k, codec in enumerate(codecs):
            step_ms, size, report = (20.0, 1e5 / k, REPORT) if k else (100.0, 12e5, None)
            these = made_rows(20, step_ms / 1e3, 0.95 + 0.01 * seed, size)
            outcomes.append(made_outcome(codec, seed, these, step_ms + seed, size, report))
            rows[outcomes[-1].label] = these
    origin = describe("ddp <against> terngrad", "thinwire compare digits", "loopback", digits().to_dict())
    return Record(origin, tuple(outcomes), rows)
