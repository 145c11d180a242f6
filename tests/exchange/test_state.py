"""States: a run that is stopped and resumed goes on with the same bits; what does not fit is refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
import torch
from torch import Tensor

from simulation import Gradients, Simulation, assert_same, flat, gaussian, specs_of, sum_of
from thinwire.errors import StateError
from thinwire.exchange.engine import Engine
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Spec

SPECS = specs_of({"conv": (8, 3, 3, 3), "norm": 8, "fc": (37, 53)})
CODEC = {"norm": "bf16", "fc": "terngrad", "conv": "terngrad:block=32"}
SOURCE = gaussian(SPECS)


def simulation(world: int, **changes: Any) -> Simulation:
    return Simulation(CODEC, SPECS, world, feedback="residual").but(**changes)


def steps(sim: Simulation, engine: Engine, first: int, last: int) -> list[Gradients]:
    return [sim.step(engine, SOURCE(step, engine.group.rank)) for step in range(first, last)]


def saved(state: dict[str, Any]) -> dict[str, Any]:
    """Through a file, without pickled classes."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


def states(sim: Simulation, gather: bool, num_steps: int = 3) -> list[dict[str, Any]]:
    def work(group: ThreadGroup) -> dict[str, Any]:
        engine = sim.engine(group)
        steps(sim, engine, 0, num_steps)
        return saved((gathered_state if gather else local_state)(engine))

    return run_ranks(sim.world, work)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("world", [1, 2, 3, 5])
def test_resuming_gives_the_same_bits(world: int, gather: bool) -> None:
    sim = simulation(world)
    expected = sim.run(SOURCE, steps=5)
    given = states(sim, gather)

    def work(group: ThreadGroup) -> list[Gradients]:
        engine = sim.engine(group)
        load_state(engine, given[0 if gather else group.rank])
        assert engine.step == 3
        return steps(sim, engine, 3, 5)

    for rank, means in enumerate(run_ranks(world, work)):
        for a, b in zip(expected[rank][3:], means, strict=True):
            assert_same(a, b)


def test_the_step_alone_must_be_restored() -> None:
    """Without memory the state is the step: the draws go on where they stopped."""
    sim = Simulation("terngrad", SPECS, 2)
    expected = sim.run(SOURCE, steps=4)

    def work(group: ThreadGroup) -> list[Gradients]:
        engine = sim.engine(group)
        steps(sim, engine, 0, 2)
        state = saved(local_state(engine))
        fresh = sim.engine(group)
        load_state(fresh, state)
        return steps(sim, fresh, 2, 4)

    for a, b in zip(expected[0][2:], run_ranks(2, work)[0], strict=True):
        assert_same(a, b)


def test_gathered_states_are_the_same_on_every_rank() -> None:
    first, *others = states(simulation(3), gather=True)
    for other in others:
        assert {k: v for k, v in other.items() if k != "ranks"} == {
            k: v for k, v in first.items() if k != "ranks"
        }
        for mine, theirs in zip(first["ranks"], other["ranks"], strict=True):
            for kind in mine:
                assert_same(flat(mine[kind]), flat(theirs[kind]))


def residual_sum(ranks: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {spec.name: sum_of(kept[spec.name] for kept in ranks if spec.name in kept) for spec in SPECS}


@pytest.mark.parametrize("new_world", [1, 2, 3, 5])
def test_a_changed_world_keeps_the_sum_of_the_residuals(new_world: int) -> None:
    state = states(simulation(3), gather=True)[0]
    before = residual_sum([rank["residual"]["residual"] for rank in state["ranks"]])
    sim = simulation(new_world)

    def work(group: ThreadGroup) -> dict[str, Tensor]:
        engine = sim.engine(group)
        load_state(engine, state)
        kept = engine.feedbacks["residual"].state()["residual"]
        steps(sim, engine, 3, 5)  # and it goes on
        return kept

    after = residual_sum(run_ranks(new_world, work))
    for name, total in before.items():
        torch.testing.assert_close(after[name], total, rtol=1e-6, atol=1e-6)


def refused(state: Any, sim: Simulation | None = None, rank: int = 0) -> str:
    sim = sim or simulation(2)

    def work(group: ThreadGroup) -> str:
        engine = sim.engine(group)
        steps(sim, engine, 0, 1)
        before = saved(local_state(engine))
        if group.rank != rank:
            return ""
        with pytest.raises(StateError) as caught:
            load_state(engine, state)
        after = saved(local_state(engine))
        assert after["step"] == before["step"]
        assert_same(flat(after["feedback"]["residual"]), flat(before["feedback"]["residual"]))
        return str(caught.value)

    return run_ranks(sim.world, work)[rank]


def test_what_does_not_fit_is_refused_and_changes_nothing() -> None:
    mine, others = states(simulation(2), gather=False)
    assert "pass what state_dict() returned" in refused({})
    assert "pass what state_dict() returned" in refused([1, 2])
    assert "pass what state_dict() returned" in refused(None)
    assert "has version 99, this thinwire reads version" in refused({**mine, "version": 99})
    assert "seed 5, this compressor has 0" in refused({**mine, "seed": 5})
    assert "rank 1 of 2, this is rank 0 of 2: load each rank's own state" in refused(others)
    assert "this is rank 0 of 3" in refused(mine, simulation(3))


def _rules_for(specs: tuple[Spec, ...]) -> dict[str, str]:
    return {spec.name: CODEC[spec.name] for spec in specs}


def test_states_of_another_model_or_codec_are_refused() -> None:
    for other in (
        simulation(2, codec="terngrad"),
        simulation(2, feedback=None),
        Simulation(_rules_for(SPECS[:2]), SPECS[:2], 2, feedback="residual"),
        Simulation(CODEC, specs_of({"conv": (8, 27), "norm": 8, "fc": (37, 53)}), 2, feedback="residual"),
    ):
        state = states_of(other)
        assert "another model or codec" in refused(state)
    shuffled = Simulation(CODEC, SPECS[::-1], 2, feedback="residual")
    assert "another order" in refused(states_of(shuffled))


def states_of(sim: Simulation) -> dict[str, Any]:
    def work(group: ThreadGroup) -> dict[str, Any]:
        return saved(local_state(sim.engine(group)))

    return run_ranks(sim.world, work)[0]


PARTS = ("conv", "fc")  # what is left when "norm" was frozen


def partial(feedback: str, codec: str, names: tuple[str, ...] = PARTS) -> Simulation:
    specs = tuple(spec for spec in SPECS if spec.name in names)
    return Simulation(codec, specs, 2, feedback=feedback)


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize(("feedback", "codec"), [("residual", "topk:0.1"), ("momentum", "dgc:0.1,warmup=2")])
def test_what_fits_is_taken_and_the_rest_is_named(feedback: str, codec: str, gather: bool) -> None:
    """A layer was frozen: what the others hold back is kept, and thawed again it starts with nothing."""
    whole, part = partial(feedback, codec, ("conv", "norm", "fc")), partial(feedback, codec)
    given = states(whole, gather)

    def frozen(group: ThreadGroup) -> dict[str, Any]:
        engine, state = part.engine(group), given[0 if gather else group.rank]
        with pytest.raises(StateError, match=r'in the state only "norm\[8\].*strict=False'):
            load_state(engine, state)
        not_taken = load_state(engine, state, strict=False)
        assert (not_taken.missing_keys, not_taken.unexpected_keys) == ([], ["norm"])
        assert engine.step == 3
        steps(part, engine, 3, 4)
        return saved(local_state(engine))

    def kept(group: ThreadGroup) -> dict[str, Tensor]:
        engine = part.engine(group)
        load_state(engine, given[0 if gather else group.rank], strict=False)
        return flat(saved(local_state(engine))["feedback"][feedback])

    for rank, mine in enumerate(run_ranks(2, kept)):
        before = given[0]["ranks"][rank][feedback] if gather else given[rank]["feedback"][feedback]
        others = {name: kept for name, kept in flat(before).items() if not name.endswith("norm")}
        assert_same(mine, others)

    later = run_ranks(2, frozen)

    def thawed(group: ThreadGroup) -> tuple[list[str], list[str]]:
        engine = whole.engine(group)
        not_taken = load_state(engine, later[group.rank], strict=False)
        steps(whole, engine, 4, 5)
        return not_taken.missing_keys, not_taken.unexpected_keys

    assert run_ranks(2, thawed) == [(["norm"], [])] * 2


def test_another_codec_is_in_both_lists_and_what_fits_exactly_leaves_none() -> None:
    given = states(partial("residual", "topk:0.1"), gather=False)
    other = Simulation({"conv": "topk:0.2", "fc": "topk:0.1"}, partial("", "").specs, 2, feedback="residual")

    def work(group: ThreadGroup) -> tuple[list[str], list[str]]:
        not_taken = load_state(other.engine(group), given[group.rank], strict=False)
        assert load_state(partial("residual", "topk:0.1").engine(group), given[group.rank]) == ([], [])
        return not_taken.missing_keys, not_taken.unexpected_keys

    assert run_ranks(2, work) == [(["conv"], ["conv"])] * 2


def test_a_thawed_layer_makes_a_learning_codec_learn_anew() -> None:
    """In the compressed phase it would have no basis."""
    specs = specs_of({"a": (8, 4, 3, 3), "b": (8, 4, 3, 3)})
    codec = "gradiveq:4,slice=8,sample=2,compress=20,layers=all"
    whole, part = Simulation(codec, specs, 2), Simulation(codec, specs[:1], 2)
    source = gaussian(specs)

    def work(group: ThreadGroup) -> int:
        engine = part.engine(group)
        for step in range(5):
            part.step(engine, source(step, group.rank))
        fresh = whole.engine(group)
        assert load_state(fresh, local_state(engine), strict=False).missing_keys == ["b"]
        for step in range(5, 10):
            whole.step(fresh, source(step, group.rank))
        return fresh.finite_steps

    assert run_ranks(2, work) == [5, 5]
