"""The cost of a step: seconds of computing and coding as recorded, and bytes, whose time the link decides."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from thinwire.texts.rate import parse_rate
from thinwire_lab.report.operation_times import operation_ms
from thinwire_lab.report.outcome import Outcome, Row
from thinwire_lab.report.record import Record

CODING = ("encode", "merge", "decode")
EXCHANGE = ("agree", *CODING)  # as recorded at any link: agreeing is short messages, whose time is latency


@dataclass(frozen=True)
class StepCost:
    """One step of one run, as one after the other: nothing overlaps.

    At the link of the run it is no less than what was measured: what bytes and stages do not explain is
    "wait", which stays at any link.

    >>> StepCost({"compute": 0.010, "encode": 0.002}, num_bytes=1e6).seconds(rate=1e9)
    0.02
    """

    stages: dict[str, float]  # seconds
    num_bytes: float

    @property
    def exchange_s(self) -> float:
        """What the exchange adds to computing, without its bytes."""
        return sum(seconds for name, seconds in self.stages.items() if name != "compute")

    def seconds(self, rate: float) -> float:
        """At a link of so many bits a second."""
        return sum(self.stages.values()) + 8 * self.num_bytes / rate


def mean_cost(costs: Sequence[StepCost]) -> StepCost:
    """Of runs of one codec; a stage that a run has not takes it no time."""
    names = dict.fromkeys(name for cost in costs for name in cost.stages)
    stages = {name: fmean(cost.stages.get(name, 0.0) for cost in costs) for name in names}
    return StepCost(stages, fmean(cost.num_bytes for cost in costs))


def codec_cost(record: Record, codec: str) -> StepCost:
    """What a step of a codec costs, over all its runs."""
    runs = [outcome for outcome in record.outcomes if outcome.asked == codec]
    return mean_cost([step_cost(run, record.rows[run.label], rate_of(record)) for run in runs])


def rate_of(record: Record) -> float:
    """Bits a second of the link that runs had; without one, no time of theirs was a link's."""
    rate = record.origin.recipe.get("rate")
    return parse_rate(rate) if rate else float("inf")


def step_cost(outcome: Outcome, rows: list[Row], rate: float) -> StepCost:
    """What a run's steps cost on average; computing is what a step took without waiting for gradients."""
    last = next((row for row in reversed(rows) if "waited_s" in row), {})
    waited = last.get("waited_s", 0.0) / max(last.get("seconds", 0.0), 1e-9)
    stages = {"compute": outcome.step_ms / 1e3 * (1 - min(1.0, waited))}
    link_s, travel_s = 8 * outcome.bytes_per_step / rate, 0.0
    if outcome.report is not None:
        stages |= {name: operation_ms(outcome, name) / 1e3 for name in EXCHANGE}
        travel_s = operation_ms(outcome, "travel") / 1e3
    unexplained = outcome.step_ms / 1e3 - sum(stages.values())
    stages["wait"] = max(0.0, travel_s - link_s, unexplained - link_s)
    return StepCost(stages, outcome.bytes_per_step)
