"""The autotuner: what it measures, tries and decides on, under a clock that the test turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from thinwire.auto.autotuner import MAX_STEPS, SWITCH_STEPS, WARM_UP, Autotuner
from thinwire.auto.qualities import CANDIDATES, NEVER, QUALITIES, candidates
from thinwire.auto.race import Decision, Race, decide
from thinwire.auto.watch import LINK_WINDOWS, WINDOW, Passes, StepTimer
from thinwire.codecs.codec import parse
from thinwire.errors import PlanError
from thinwire.perf.fit import Forecasts


class World:
    """A actions over made-up times: a step under a codec takes what the table says."""

    def __init__(self, step_s: Mapping[str, float], forecast_s: Mapping[str, float] | None = None) -> None:
        self.step_s, self.forecast_s = dict(step_s), dict(forecast_s or step_s)
        self.message_s = 0.01
        self.now, self.codec, self.pending_gradients = 0.0, "dense", 0
        self.ran: list[str] = []

    def adopt(self, text: str) -> None:
        self.codec = text

    def steer(self, text: str) -> None:
        self.codec = text

    def agree(self, numbers: Sequence[float]) -> list[float]:
        return list(numbers)

    def link_s(self, nbytes: int, messages: int) -> float:
        return self.message_s * (1 + nbytes / 1e4)

    def drain(self) -> None:
        self.pending_gradients += 1

    @property
    def flood_bytes(self) -> int:
        return 0

    def measure(self, codecs: Sequence[str], step_s: float) -> None:
        assert not [codec for codec in codecs if codec not in candidates("aggressive")]
        assert step_s == pytest.approx(self.step_s["dense"])

    def forecasts(self, texts: Sequence[str], passes: Passes, measured_s: Mapping[str, float]) -> Forecasts:
        made = {text: self.forecast_s[text] for text in texts if text in self.forecast_s}
        return Forecasts(made, made, self.forecast_s["dense"])

    def run(self, autotuner: Autotuner, steps: int) -> None:
        for _ in range(steps):
            autotuner.begin_step(self.now)
            assert autotuner.codec == self.codec
            self.ran.append(self.codec)
            self.now += self.step_s[self.codec]
            autotuner.pace.end(self.now - COMPUTE_S)


COMPUTE_S = 0.095
SLOW_LINK = {"dense": 1.0, "fp16": 0.6, "qsgd:8": 0.4, "qsgd:4": 0.25, "terngrad:1": 0.2, "fft:0.85": 0.3}
FAST_LINK = {"dense": 0.1, "fp16": 0.11, "qsgd:8": 0.12, "qsgd:4": 0.12, "terngrad:1": 0.12, "fft:0.85": 0.3}
ENOUGH = 100


@pytest.mark.parametrize(
    ("quality", "codec"), [("exact", "dense"), ("safe", "qsgd:4"), ("balanced", "terngrad:1")]
)
def test_the_quickest_that_the_quality_allows(quality: str, codec: str) -> None:
    world = World(SLOW_LINK)
    made = Autotuner(quality, world)
    world.run(made, ENOUGH)
    assert made.decided
    assert made.codec == codec
    assert set(world.ran) <= {"dense", *candidates(quality)}


def test_the_first_steps_are_dense_and_the_best_by_forecast_is_tried_first() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    first = next(k for k, text in enumerate(world.ran) if text != "dense")
    assert first > WARM_UP
    assert world.ran[first] == "terngrad:1"
    assert made.decision is not None
    assert made.decision.step <= MAX_STEPS
    assert world.pending_gradients >= len(set(world.ran)) - 1  # token buckets are emptied before every trial


def test_a_choice_that_could_not_win_is_not_tried() -> None:
    world = World(SLOW_LINK)
    world.run(Autotuner("balanced", world), ENOUGH)
    assert "fp16" not in world.ran  # forecast to take three times what terngrad:1 was measured to take


def test_where_communication_is_no_part_of_a_step_nothing_is_tried() -> None:
    world = World(FAST_LINK, {**FAST_LINK, **dict.fromkeys(candidates("balanced"), 1.0)})
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    assert set(world.ran) == {"dense"}
    assert made.decision is not None
    assert "communication is too small a part" in str(made.decision)


def test_a_forecast_that_contradicts_the_measured_step_is_no_reason_to_try_nothing() -> None:
    """A step of 982 ms, forecast to take 44: codecs were not tried because none was forecast to pay."""
    wrong = dict.fromkeys(SLOW_LINK, 0.5)
    world = World(SLOW_LINK, {**wrong, "dense": 0.044})
    made = Autotuner("safe", world)
    world.run(made, ENOUGH)
    assert made.codec == "qsgd:4"
    assert "probes alone forecast 44 ms for plain DDP, 22.7 times too quick" in str(made.decision)


def test_of_a_choice_that_is_much_slower_one_step_is_timed() -> None:
    world = World({**SLOW_LINK, "qsgd:4": 5.0}, SLOW_LINK)
    made = Autotuner("safe", world)
    world.run(made, ENOUGH)
    assert world.ran.count("qsgd:4") == SWITCH_STEPS + 1
    assert made.codec == "qsgd:8"


def test_long_steps_are_timed_less_often() -> None:
    world = World({text: 30 * s for text, s in SLOW_LINK.items()})
    made = Autotuner("balanced", world)
    while not made.decided:
        world.run(made, 1)
    assert made.codec == "terngrad:1"
    assert made.step < 30
    assert world.now < 600.0


def test_measurement_overrules_the_forecast() -> None:
    world = World(FAST_LINK, {**FAST_LINK, "terngrad:1": 0.01})
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    assert "terngrad:1" in world.ran
    assert made.codec == "dense"
    assert made.decision is not None
    assert "plain DDP is quicker" in made.decision.why


def test_a_gain_within_noise_is_none() -> None:
    def decided(dense: list[float], **others: list[float]) -> Decision:
        return decide(Race({"dense": dense, **others}), candidates("safe"), 5, {})

    little = decided([1.0] * 4, fp16=[0.98] * 4)
    assert little.codec == "dense"
    assert "fp16 saves 2.0% of a step, and less than 3% is noise" in str(little)
    assert decided([1.0] * 4, fp16=[0.9] * 4).codec == "fp16"
    doubtful = decided([1.4, 0.8, 1.3, 0.7], fp16=[0.5, 1.2, 0.6, 1.3])
    assert doubtful.codec == "dense"
    assert "steps vary more than that" in str(doubtful)


def test_of_equally_quick_choices_the_one_that_loses_least_is_taken() -> None:
    race = Race({"dense": [1.0] * 4, "qsgd:4": [0.5] * 4, "fp16": [0.503] * 4, "qsgd:8": [0.55] * 4})
    assert race.winner(candidates("safe")) == "fp16"


def test_one_slow_step_changes_nothing() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    decisions = len(made.decisions)
    for _ in range(10):
        world.now += 100.0  # an evaluation, a checkpoint
        world.run(made, WINDOW)
    assert len(made.decisions) == decisions


def test_steps_that_take_another_time_make_it_decide_anew() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    assert made.codec == "terngrad:1"
    world.step_s = dict(FAST_LINK)
    world.forecast_s = dict(FAST_LINK)
    world.run(made, 6 * WINDOW)
    assert made.decided
    assert made.codec == "dense"
    assert len(made.decisions) == 2


def test_another_link_is_noticed_though_steps_take_their_time() -> None:
    """A compressed step may hardly change when the link gets quicker: messages are looked at too."""
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    world.message_s /= 100
    world.step_s["dense"] = 0.1
    world.run(made, (LINK_WINDOWS + 4) * (WINDOW + SWITCH_STEPS))
    assert made.codec == "dense"


def test_a_decision_is_replayed_on_the_same_link_and_made_anew_on_another() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    saved = made.state_dict()
    again = World(SLOW_LINK)
    resumed = Autotuner("balanced", again)
    resumed.load(saved)
    again.run(resumed, 30)
    assert set(again.ran) == {"terngrad:1"}
    other = World(FAST_LINK)
    other.message_s = 0.0001
    moved = Autotuner("balanced", other)
    moved.load(saved)
    other.run(moved, ENOUGH)
    assert moved.codec == "dense"
    assert other.ran[0] == "dense"


def test_a_state_of_an_undecided_run_measures_anew() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    while made.codec == "dense":
        world.run(made, 1)
    assert made.codec == "terngrad:1"
    assert not made.decided
    again = World(SLOW_LINK)
    resumed = Autotuner("balanced", again)
    resumed.load(made.state_dict())
    again.run(resumed, ENOUGH)
    assert again.ran[0] == "dense"
    assert resumed.codec == "terngrad:1"


def test_a_codec_that_is_vetoed_never_comes_back() -> None:
    """Neither in this run nor in one that goes on with its state; all else is measured anew."""
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    assert made.codec == "terngrad:1"
    made.veto()
    assert world.codec == made.codec == "dense"
    ran = len(world.ran)
    world.run(made, ENOUGH)
    assert "terngrad:1" not in world.ran[ran:]
    assert made.codec == "qsgd:4"
    assert f"never terngrad:1 again, in step {ran - 1}" in made.explanation
    again = World(SLOW_LINK)
    resumed = Autotuner("balanced", again)
    resumed.load(made.state_dict())
    resumed.veto()
    again.run(resumed, ENOUGH)
    assert set(again.ran) <= {"dense", "fft:0.85", "qsgd:8", "fp16"}
    assert set(resumed.vetoed) == {"terngrad:1", "qsgd:4"}


def test_a_veto_in_a_trial_ends_it_and_with_no_codec_left_all_is_sent() -> None:
    world = World({**SLOW_LINK, "bf16": 0.65})
    made = Autotuner("safe", world)
    for _ in candidates("safe"):
        while made.codec == "dense" and not made.decided:
            world.run(made, 1)
        made.veto()
    world.run(made, ENOUGH)
    assert made.choices == ()
    assert made.codec == "dense"
    assert 'no codec of quality "safe" is left' in made.explanation


def test_plain_ddp_cannot_be_vetoed() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("safe", world)
    world.run(made, 3)
    made.veto()
    assert made.vetoed == {}


NODES = {**SLOW_LINK, "dense by nodes": 0.7, "qsgd:4 by nodes": 0.22, "terngrad:1 by nodes": 0.15}


def test_where_workers_share_nodes_both_ways_are_tried_and_the_quicker_stays() -> None:
    world = World(NODES)
    made = Autotuner("balanced", world, nodes=True)
    world.run(made, ENOUGH)
    assert {"terngrad:1", "terngrad:1 by nodes"} <= set(world.ran)
    assert made.codec == "terngrad:1 by nodes"
    assert "terngrad:1 by nodes from step" in str(made.decision)
    flat = World({**NODES, "terngrad:1 by nodes": 0.3, "qsgd:4 by nodes": 0.4})
    made = Autotuner("balanced", flat, nodes=True)
    flat.run(made, ENOUGH)
    assert made.codec == "terngrad:1"


def test_without_nodes_nothing_goes_by_nodes() -> None:
    world = World(NODES)
    world.run(Autotuner("balanced", world), ENOUGH)
    assert not [text for text in world.ran if "by nodes" in text]


def test_a_link_that_changes_may_end_the_way_by_nodes() -> None:
    world = World(NODES)
    made = Autotuner("balanced", world, nodes=True)
    world.run(made, ENOUGH)
    world.step_s = {**FAST_LINK, **{text: 0.3 for text in NODES if "by nodes" in text}}
    world.forecast_s = dict(world.step_s)
    world.run(made, 6 * WINDOW)
    assert made.codec == "dense"
    assert len(made.decisions) == 2


def test_a_decision_for_nodes_is_replayed_where_there_are_nodes_and_made_anew_elsewhere() -> None:
    world = World(NODES)
    made = Autotuner("balanced", world, nodes=True)
    world.run(made, ENOUGH)
    again = World(NODES)
    resumed = Autotuner("balanced", again, nodes=True)
    resumed.load(made.state_dict())
    again.run(resumed, 30)
    assert set(again.ran) == {"terngrad:1 by nodes"}
    other = World(NODES)
    moved = Autotuner("balanced", other)
    moved.load(made.state_dict())
    assert other.codec == "terngrad:1"  # what it held back is loaded into this one
    other.run(moved, ENOUGH)
    assert other.ran[0] == "dense"
    assert moved.codec == "terngrad:1"


def test_the_best_of_either_way_is_tried_if_it_is_within_reach() -> None:
    race = Race({"dense": [1.0], "a": [0.5]})
    flat = {"a": 0.1, "b": 0.2, "c": 0.3}

    def next_of(nested: dict[str, float]) -> str | None:
        return race.next_trial(Forecasts({**flat, **nested}, {**flat, **nested}, 1.0), 0)

    assert next_of({"a by nodes": 0.6}) == "a by nodes"
    assert next_of({"a by nodes": 0.7}) == "b"
    race.add("b", [0.1])
    assert next_of({}) is None


def test_what_deciding_took_is_noted_and_survives_a_state() -> None:
    world = World(SLOW_LINK)
    made = Autotuner("balanced", world)
    world.run(made, ENOUGH)
    assert made.decision is not None
    assert made.decision.deciding_s > 0
    assert "forecasting, deciding and the switch took" in str(made.decision)
    assert Decision(**made.state_dict()["decision"]) == made.decision


def test_passes_are_medians_of_steps_with_the_same_buckets() -> None:
    pace = StepTimer()
    for start, length in ((0.0, 1.0), (10.0, 2.0), (20.0, 2.0), (30.0, 9.0)):
        pace.begin(start)
        pace.ready(start + length)
        pace.end(start + 5.0)
    passes = Passes.of(pace.steps)
    assert passes == Passes(5.0, (0.0, 2.0))
    pace.begin(40.0)  # DDP has made one bucket of the two
    pace.end(45.0)
    pace.begin(50.0)
    assert Passes.of(pace.steps) == Passes(5.0, (0.0,))
    assert Passes.of([]) is None


def test_the_table_of_qualities_is_about_codecs_that_exist() -> None:
    for candidate in CANDIDATES:
        assert candidate.quality in QUALITIES
        assert parse(candidate.codec).feedback in ("none", "residual")
        assert candidate.codec.partition(":")[0] not in NEVER
        assert candidate.sgd
        assert candidate.adam
    for name in NEVER:
        parse(name)
    with pytest.raises(PlanError, match='no quality "fast": known are exact, safe, balanced, aggressive'):
        candidates("fast")
