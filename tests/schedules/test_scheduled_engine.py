"""A control in the line: all ranks alike, bytes as planned, states that go on with the same bits."""

from __future__ import annotations

import io
import logging
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thinwire as tw
from simulation import Gradients, Simulation, assert_ranks_agree, assert_same, flat, gaussian, specs_of
from thinwire.errors import PlanError, StateError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.base import all_gather_bytes
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import RECORD_BYTES, Observation

SPECS = specs_of({"conv": (8, 3, 3, 3), "norm": 8, "fc": (37, 53)})
SOURCE = gaussian(SPECS)
BUCKETS = (("fc",), ("norm", "conv"))
TWO_HALVINGS = "guard:window=1,patience=1,gain=0.0"  # on losses that rise
Loss = Callable[[int, int], float]


def simulation(codec: str, world: int, **changes: Any) -> Simulation:
    return Simulation(codec, SPECS, world, buckets=BUCKETS).but(**changes)


def rising(step: int, rank: int) -> float:
    return 2.0**step + rank


def train(
    sim: Simulation, engine: Engine, first: int, last: int, loss: Loss | None = rising
) -> tuple[list[Gradients], list[float]]:
    """Means and levels by step; every rank observes behind its step, as a script does."""
    means, levels = [], []
    for step in range(first, last):
        means.append(sim.step(engine, SOURCE(step, engine.group.rank)))
        levels.append(engine.scheduler.compression_level)
        if loss is not None:
            value = loss(step, engine.group.rank)
            engine.scheduler.observe(Observation.of(value, lr=0.1 / (1 + step), epoch=step // 2))
    return means, levels


SCHEDULES = {
    "guard": (TWO_HALVINGS, [1, 1, 0.5, 0.25, 0.125, 0.0625]),
    "diminish": ("diminish", [1, 1, 0.5, 10 / 32, 8 / 32, 6 / 32]),
    "epochs": ("epochs:0=1/1=0.5/2=0", [1, 1, 1, 0.5, 0.5, 0]),
    "steps": ("steps:0=0.75/4=0.25", [0.75, 0.75, 0.75, 0.75, 0.25, 0.25]),
}
CODECS = (
    "topk:0.1",
    "dgc:0.1,warmup=2",
    "qsgd:2",
    "qsgd:3,scales=own",
    "fft:0.9",
    "rangefloat:6",
    "topk:0.1 >> bf16",
)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("codec", CODECS)
def test_all_ranks_have_the_same_share_and_the_same_means(codec: str, schedule: str) -> None:
    text, expected = SCHEDULES[schedule]
    sim = simulation(codec, 3, schedule=text)
    results = run_ranks(3, lambda group: train(sim, sim.engine(group), 0, 6))
    assert_ranks_agree([means for means, _ in results])
    assert [levels for _, levels in results] == [expected] * 3


@pytest.mark.parametrize("codec", CODECS)
def test_a_share_is_the_codec_that_eased_gives(codec: str) -> None:
    """Step by step the means are those of the gentler codec, memory and draws included."""
    sim = simulation(codec, 2, schedule="steps:0=0.5", feedback="none")
    plain = sim.but(codec=tw.parse(codec).at_level(0.5), schedule=None)
    for mine, theirs in zip(sim.run(SOURCE, 3)[0], plain.run(SOURCE, 3)[0], strict=True):
        assert_same(mine, theirs)
    assert sim.plan.at_level(0.5).entries == plain.plan.entries


@pytest.mark.parametrize("codec", ["topk:0.2", "fft:0.8 >> dense"])
def test_share_zero_sends_everything(codec: str) -> None:
    means = simulation(codec, 2, schedule="steps:0=0").run(SOURCE)[0][0]
    for name, mean in means.items():
        exact = (SOURCE(0, 0)[name].double() + SOURCE(0, 1)[name].double()) / 2
        torch.testing.assert_close(mean.double(), exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("schedule", SCHEDULES)
@pytest.mark.parametrize("codec", CODECS)
def test_bytes_are_exactly_as_planned(codec: str, schedule: str) -> None:
    """What observing costs is in the plan; beyond it only 32 bytes are compared where lanes are new."""
    sim = simulation(codec, 3, schedule=SCHEDULES[schedule][0])

    def work(group: ThreadGroup) -> None:
        engine = sim.engine(group)
        for step in range(6):
            before = engine.group.total_bytes
            level, phases = engine.scheduler.compression_level, len(engine.lanes)
            train(sim, engine, step, step + 1)
            at_level = engine.plan.at_level(engine.scheduler.compression_level)
            planned = at_level.step_bytes(sim.layouts, step)
            new = (
                len(BUCKETS)
                if engine.scheduler.compression_level != level or len(engine.lanes) != phases
                else 0
            )
            assert engine.group.total_bytes - before == planned + new * all_gather_bytes(32, group.size)

    run_ranks(3, work)
    listens = all_gather_bytes(RECORD_BYTES, 3) if schedule != "steps" else 0
    alone = sim.but(schedule=None).plan
    assert sim.plan.step_bytes(sim.layouts) - alone.step_bytes(sim.layouts) == listens


def test_without_a_control_nothing_is_exchanged_for_it() -> None:
    def gathers(schedule: str | None) -> int:
        sim = simulation("topk:0.1", 2, schedule=schedule)

        def work(group: ThreadGroup) -> int:
            engine = sim.engine(group)
            train(sim, engine, 0, 3, loss=None)
            return engine.group.calls["all_gather"]

        return run_ranks(2, work)[0]

    assert gathers(None) == gathers("constant") == gathers("steps:0=1") == gathers("guard") - 3


def test_ranks_with_different_controls_notice() -> None:
    def work(group: ThreadGroup) -> str:
        schedule = "guard" if group.rank else "guard:window=10"
        with pytest.raises(PlanError) as caught:
            simulation("topk:0.1", 2, schedule=schedule).engine(group)
        return str(caught.value)

    for text in run_ranks(2, work):
        assert "ranks disagree on their plans" in text


def test_changes_are_listed_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    sim = simulation("topk:0.1", 2, schedule=TWO_HALVINGS)

    def work(group: ThreadGroup) -> list[tuple[int, float, str]]:
        engine = sim.engine(group)
        train(sim, engine, 0, 4)
        return [(change.step, change.compression_level, change.why) for change in engine.scheduler.changes]

    with caplog.at_level(logging.INFO, "thinwire"):
        first, second = run_ranks(2, work)
    assert first == second
    assert [(step, level) for step, level, _ in first] == [(2, 0.5), (3, 0.25)]
    assert "2.5 is worse than 1.5 by more than 20 %" in first[0][2], "the means of 2 and 3, of 1 and 2"
    assert sum("compression level 0.25, was 0.5" in line for line in caplog.messages) == 2


def test_a_silent_script_is_reminded(caplog: pytest.LogCaptureFixture) -> None:
    sim = Simulation("topk:0.5", specs_of({"a": 4}), 1, schedule="guard")
    source = gaussian(sim.specs)
    run_ranks(
        1,
        lambda group: [sim.step(engine, source(0, 0)) for engine in [sim.engine(group)] for _ in range(150)],
    )
    assert [line for line in caplog.messages if "call compressor.observe(loss) in every step" in line]


def test_nan_on_one_rank_lowers_on_all() -> None:
    sim = simulation("topk:0.1", 3, schedule="guard")
    loss: Loss = lambda step, rank: math.nan if (step, rank) == (1, 2) else 1.0  # noqa: E731
    for _, levels in run_ranks(3, lambda group: train(sim, sim.engine(group), 0, 4, loss)):
        assert levels == [1, 1, 0.5, 0.5]


def silent_rank(group: ThreadGroup) -> tuple[str, bool]:
    """Rank 1 forgets to observe; then every rank raises, and nothing has changed."""
    sim = simulation("topk:0.1", 3, schedule="guard")
    engine = sim.engine(group)
    train(sim, engine, 0, 1, loss=None)
    before = local_state(engine)["feedback"]["residual"]
    if group.rank != 1:
        engine.scheduler.observe(Observation.of(1.0))
    with pytest.raises(PlanError) as caught:
        sim.step(engine, SOURCE(1, group.rank))
    after = local_state(engine)["feedback"]["residual"]
    return str(caught.value), all(torch.equal(kept, flat(after)[name]) for name, kept in flat(before).items())


def test_observing_on_some_ranks_only_is_an_error_on_all() -> None:
    for text, unchanged in run_ranks(3, silent_rank):
        assert "rank 0, 2 called it once, rank 1 did not" in text
        assert unchanged


def saved(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def noisy(step: int, rank: int) -> float:
    return 2.0 + math.sin(17 * step + rank)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize(
    "schedule", ["guard:window=1,patience=1,gain=0.0", "diminish", "epochs:0=1/2=0.5/4=0.25"]
)
@pytest.mark.parametrize("codec", ["topk:0.1", "qsgd:2"])
def test_resuming_gives_the_same_bits(codec: str, schedule: str, gather: bool) -> None:
    """The state is taken between an observation and the step that goes by it."""
    sim = simulation(codec, 3, schedule=schedule)

    def whole(group: ThreadGroup) -> tuple[Any, ...]:
        engine = sim.engine(group)
        means, levels = train(sim, engine, 0, 12, noisy)
        return means, levels, engine.scheduler.state, engine.scheduler.changes

    def halves(group: ThreadGroup) -> tuple[Any, ...]:
        engine = sim.engine(group)
        means, levels = train(sim, engine, 0, 7, noisy)
        state = saved((gathered_state if gather else local_state)(engine))
        engine = sim.engine(group)
        train(sim, engine, 0, 2, lambda step, rank: 9.0)  # a life of its own, which loading ends
        load_state(engine, state)
        later, more = train(sim, engine, 7, 12, noisy)
        return means + later, levels + more, engine.scheduler.state, engine.scheduler.changes

    for one, two in zip(run_ranks(3, whole), run_ranks(3, halves), strict=True):
        assert len(set(one[1])) > 1, "the compression level must change for this to be a test"
        assert one[1:] == two[1:]
        for mine, theirs in zip(one[0], two[0], strict=True):
            assert_same(mine, theirs)


@pytest.mark.parametrize("world", [1, 2, 5])
def test_a_world_of_another_size_goes_on_with_the_same_level(world: int) -> None:
    sim = simulation("topk:0.1", 3, schedule=TWO_HALVINGS)

    def first(group: ThreadGroup) -> dict[str, Any]:
        engine = sim.engine(group)
        train(sim, engine, 0, 4)
        return saved(gathered_state(engine))

    state = run_ranks(3, first)[0]
    other = sim.but(world=world)

    def second(group: ThreadGroup) -> list[float]:
        engine = other.engine(group)
        load_state(engine, state)
        return train(other, engine, 4, 6, lambda step, rank: 30.0)[1]

    assert run_ranks(world, second) == [[0.125, 0.0625]] * world


def test_states_under_another_schedule_are_refused() -> None:
    def state(schedule: str | None) -> dict[str, Any]:
        sim = simulation("topk:0.1", 1, schedule=schedule)
        return run_ranks(1, lambda group: saved(local_state(sim.engine(group))))[0]

    def load(schedule: str | None, given: dict[str, Any]) -> Engine:
        sim = simulation("topk:0.1", 1, schedule=schedule)

        def work(group: ThreadGroup) -> Engine:
            engine = sim.engine(group)
            load_state(engine, given)
            return engine

        return run_ranks(1, work)[0]

    for schedule in (None, "diminish", "guard:window=3"):
        with pytest.raises(StateError, match='made under schedule "guard", this compressor has'):
            load(schedule, state("guard"))
    assert load("guard", state(None)).scheduler.compression_level == 1.0, (
        "a guard may join a run that had none"
    )


def test_lanes_of_other_shares_are_given_up() -> None:
    """Gentle lanes hold large buffers: 33 levels of them would fill the memory."""
    sim = simulation("topk:0.1", 1, schedule="diminish")

    def work(group: ThreadGroup) -> int:
        engine = sim.engine(group)
        train(sim, engine, 0, 20)
        return len(engine.lanes)

    assert run_ranks(1, work) == [len(BUCKETS)]


def test_bytes_by_layer_stay_right_when_the_share_changes() -> None:
    """Layers add up to what is sent for payloads, although lanes come and go."""
    sim = simulation("topk:0.1", 2, schedule="steps:0=1/1=0.5/2=0.25/3=0.75")

    def work(group: ThreadGroup) -> tuple[float, float]:
        engine = sim.engine(group)
        train(sim, engine, 0, 5)
        layers = sum(layer.sent_bytes for layer in engine.statistics.layers.values())
        planned = [sim.plan.at_level(level).step_bytes(sim.layouts) for level in (1, 0.5, 0.25, 0.75, 0.75)]
        return layers, float(sum(planned))

    for layers, planned in run_ranks(2, work):
        assert layers == pytest.approx(planned)


def test_a_codec_that_cannot_serve_this_world_when_eased_is_refused_at_once() -> None:
    """qsgd:2 adds up more ranks than 8 bits do: the plan says so, not the guard in the middle of a run."""
    world = 1000
    assert simulation("qsgd:2", world).plan.entries
    with pytest.raises(PlanError, match="adds up at most 258 workers"):
        Plan.of(Policy.of("qsgd:2"), Model(SPECS), world, schedule="guard")
