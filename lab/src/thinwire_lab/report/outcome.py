"""An outcome: what one finished run gave: its score, its bytes, its step time, and the rows on the way."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from thinwire.errors import LabError

Row = dict[str, Any]


@dataclass(frozen=True)
class Outcome:
    """One run. `asked` is the codec the user named, `codec` what was run in its place on this network."""

    label: str
    asked: str
    codec: str
    seed: int
    metric: str
    score: float
    accuracy: float
    test_loss: float
    steps: int
    seconds: float
    step_ms: float
    bytes_per_step: float
    bytes_source: str
    dense_bytes_per_step: float  # what a ring all-reduce of fp32 gradients would send
    parameters: str  # digest of the final parameters
    report: dict[str, Any] | None  # the compressor's own report

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def outcome_from_rows(label: str, asked: str, codec: str, seed: int, metric: str, rows: list[Row]) -> Outcome:
    """The outcome told by the rows of one run: its last evaluation and its result."""
    result = next((row for row in rows if row["row"] == "result"), None)
    evaluation = next((row for row in reversed(rows) if row["row"] == "evaluation"), None)
    if result is None or evaluation is None:
        raise LabError(f"run {label!r} ended without a result: run it again, and report this if it stays so")
    return Outcome(
        label=label,
        asked=asked,
        codec=codec,
        seed=seed,
        metric=metric,
        **{name: evaluation[name] for name in ("score", "accuracy", "test_loss")},
        **{name: result[name] for name in ("steps", "seconds", "step_ms", "bytes_per_step", "bytes_source")},
        **{name: result[name] for name in ("dense_bytes_per_step", "parameters", "report")},
    )


def start_of(rows: list[Row]) -> int:
    """The step at which a run was started: 0, unless it was resumed; rows without losses do not tell."""
    told = next((row for row in rows if row["row"] == "step"), {})
    return int(told["step"] - len(told["losses"])) if "losses" in told else 0


def outcome_from_dict(values: dict[str, Any]) -> Outcome:
    """The outcome that `to_dict` wrote; extra or lacking entries are the reader's business."""
    return Outcome(**{field.name: values[field.name] for field in fields(Outcome)})
