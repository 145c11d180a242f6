"""Operation times in a record: how long each part of the exchange took, where thinwire did it."""

from __future__ import annotations

from thinwire_lab.report.outcome import Outcome
from thinwire_lab.report.record import Record


def exchange_runs(record: Record) -> list[Outcome]:
    """The first run of every codec that went through thinwire."""
    first: dict[str, Outcome] = {}
    for outcome in record.outcomes:
        if outcome.report is not None:
            first.setdefault(outcome.asked, outcome)
    return list(first.values())


def operation_ms(outcome: Outcome, operation: str) -> float:
    """Milliseconds per step spent in an operation."""
    report = outcome.report or {}
    return float(1e3 * report["seconds"].get(operation, 0.0) / max(1, report["steps"]))
