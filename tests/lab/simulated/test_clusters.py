"""Auto on simulated clusters: what it decides, judged by true step times under a clock of the simulation."""

from __future__ import annotations

import pytest

from thinwire.perf.collectives import ALL_REDUCE
from thinwire.perf.link_probe import probe_link
from thinwire_lab.simulated.cluster import SimulatedClock, SimulatedGroup, SimulatedNetwork, Wire
from thinwire_lab.simulated.scenario import play, scenario
from thinwire_lab.simulated.verdicts import ScenarioOutcome, Summary

SCENARIOS = 200


def test_decisions_on_simulated_clusters() -> None:
    """At most 1.10 times the best in 99 %, at most 1.05 times plain DDP and 70 steps in all of them."""
    outcomes = [outcome for seed in range(SCENARIOS) for outcome in play(seed)]
    summary = Summary.of(outcomes)
    assert summary.holds, str(summary)
    assert sum(outcome.changed for outcome in outcomes) > SCENARIOS / 10
    assert len({outcome.codec for outcome in outcomes}) > 5  # not always the same


def test_a_scenario_is_made_of_its_seed_alone() -> None:
    assert scenario(7) == scenario(7)
    assert play(7) == play(7)


@pytest.mark.parametrize("seed", [1946, 1772, 1778])
def test_what_a_token_bucket_hides_is_seen(seed: int) -> None:
    """Codecs left the bucket full, so a link that became 20 times quicker looked the same (1946). Looks soon
    after a decision found a bucket that was filling: the same link looked different later (1772, 1778)."""
    summary = Summary.of(play(seed))
    assert (summary.not_slower, summary.in_time) == (summary.decisions, summary.decisions), str(summary)


def test_a_verdict_can_be_bad() -> None:
    def outcome(taken_s: float, steps: int = 60) -> ScenarioOutcome:
        return ScenarioOutcome(1, "qsgd:4", "fp16", steps, 1.0, taken_s, 1.0, 0.9, decided=True)

    assert Summary.of([outcome(0.95)]).holds
    assert not Summary.of([outcome(1.02)]).holds  # 1.13 times the best
    assert not Summary.of([outcome(0.95)] * 999 + [outcome(1.06)]).holds  # slower than plain DDP, once
    assert not Summary.of([outcome(0.95, steps=71)]).holds


@pytest.mark.parametrize("burst_bytes", [0.0, 300e3, 4e6, 16e6])
def test_a_token_bucket_does_not_fool_the_probe(burst_bytes: float) -> None:
    """22 kB took no longer than 1 kB, so 11 MB were forecast to take 44 ms instead of a second."""
    wire = Wire(1e-4, 12.5e6, burst_bytes, peak_bytes_per_s=1.25e9)
    clock = SimulatedClock()
    group = SimulatedGroup(SimulatedNetwork(wire, 4, None), clock)
    link = probe_link(group, company=False, clock=clock).link
    pace = link.timing(ALL_REDUCE)
    assert pace is not None
    assert pace.seconds(7.4e6) == pytest.approx(1.5 * 7.4e6 / 12.5e6, rel=0.1)
    assert link.burst_bytes == pytest.approx(burst_bytes, rel=0.2, abs=2e5)
