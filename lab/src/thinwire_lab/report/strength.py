"""The strength of codecs in a record: what is drawn of it, and from which rows."""

from __future__ import annotations

from thinwire_lab.report.outcome import Outcome, Row
from thinwire_lab.report.record import Record


def controlled(record: Record) -> bool:
    """Whether the strength of any codec could change."""
    return any((outcome.report or {}).get("control") for outcome in record.outcomes)


def strength_of(record: Record) -> str:
    """What is drawn of codecs' strength: theta if all with a control have it, else the strength."""
    runs = [o for o in record.outcomes if (o.report or {}).get("control")]
    return "theta" if all((run.report or {}).get("theta") is not None for run in runs) else "strength"


def strength_axis(record: Record) -> str:
    """The name of its axis."""
    return "theta: part dropped" if strength_of(record) == "theta" else "strength of the codec"


def strength_rows(record: Record, outcome: Outcome) -> list[Row]:
    """The rows of a run that tell how strong its codec was."""
    what = strength_of(record)
    return [row for row in record.rows[outcome.label] if row["row"] == "step" and what in row]
