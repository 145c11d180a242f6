"""GradiVeQ's state: a run resumes in any phase, a bad step is no sample, and what was held back is sent."""

from __future__ import annotations

import io
import math
from typing import Any

import pytest
import torch
from sliced import CODEC, CYCLE, LT, SPECS, D, M, P, engine_after, low_rank, true_mean
from torch import Tensor

from simulation import Gradients, Simulation, assert_ranks_agree, assert_same, gaussian, same_bits
from thinwire.codecs.stage import OWNED, owner
from thinwire.errors import StateError
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup, run_ranks


def saved(state: dict[str, Any]) -> dict[str, Any]:
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return torch.load(buffer, weights_only=True)


@pytest.mark.parametrize(
    ("codec", "feedback"),
    [(CODEC, None), (CODEC + ",order=auto,energy=0.7", "residual"), (CODEC + " >> ternary", None)],
)
def test_resuming_in_any_phase_gives_the_same_bits(codec: str, feedback: str | None) -> None:
    """One run that saves in every phase, both ways; and a resumed run from each of its states."""
    simulation = Simulation(codec, SPECS, 3, feedback=feedback)
    source, last = low_rank(SPECS, noise=0.3), 2 * CYCLE

    def work(group: ThreadGroup) -> None:
        engine, states, expected = simulation.engine(group), [], []
        for step in range(last):
            if step in (1, LT - 1, LT, LT + 1, CYCLE, CYCLE + 1):
                states += [(step, saved(made(engine))) for made in (local_state, gathered_state)]
            expected.append(simulation.step(engine, source(step, group.rank)))
        for stop, state in states:
            fresh = simulation.engine(group)
            load_state(fresh, state)
            for step in range(stop, last):
                assert_same(simulation.step(fresh, source(step, group.rank)), expected[step])

    run_ranks(3, work)


@pytest.mark.parametrize("new_world", [1, 2, 4])
@pytest.mark.parametrize("stop", [2, LT, LT + 2])
def test_a_changed_world_goes_on_with_the_same_samples(stop: int, new_world: int) -> None:
    """Owners change; the samples go to the new ones, and the basis is that of all samples."""
    source = low_rank(SPECS, noise=0.3)

    def state_of(group: ThreadGroup) -> dict[str, Any]:
        simulation = Simulation(CODEC, SPECS, 3)
        engine = simulation.engine(group)
        for step in range(stop):
            simulation.step(engine, source(step, group.rank))
        return saved(gathered_state(engine))

    state = run_ranks(3, state_of)[0]
    simulation = Simulation(CODEC, SPECS, new_world)

    def work(group: ThreadGroup) -> tuple[dict[str, bool], Tensor]:
        engine = simulation.engine(group)
        load_state(engine, state)
        held = {n: bool(engine.learned[n][f"{OWNED}memory count"].any()) for n in ("conv", "second", "odd")}
        for step in range(stop, CYCLE):
            simulation.step(engine, source(step, group.rank))
        return held, engine.learned["odd"]["basis"]

    ranks = run_ranks(new_world, work)
    for name in ("conv", "second", "odd"):
        assert [rank for rank, (held, _) in enumerate(ranks) if held[name]] == [owner(name, new_world)]
    assert all(same_bits(basis, ranks[0][1]) for _, basis in ranks)
    whole = torch.linalg.svdvals(ranks[0][1].double())
    torch.testing.assert_close(whole, torch.ones(D).double(), rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "other", ["gradiveq:8,slice=32", "gradiveq:4,slice=64", "gradiveq:4,slice=32,sample=9"]
)
def test_another_m_or_d_is_refused(other: str) -> None:
    group = ThreadGroup.make(1)[0]
    state = local_state(Simulation("gradiveq:4,slice=32", SPECS, 1).engine(group))
    with pytest.raises(StateError, match="another model or codec"):
        load_state(Simulation(other, SPECS, 1).engine(group), state)


@pytest.mark.parametrize("bad", [math.nan, math.inf, 1e30])
@pytest.mark.parametrize("at", [0, LT - 1, LT, LT + 1])
def test_a_bad_step_is_no_sample_and_leaves_no_trace(bad: float, at: int) -> None:
    """Non-finite in any phase: that tensor is non-finite on all ranks, phases wait, and the run goes on."""
    simulation = Simulation(CODEC, SPECS, 2, buckets=(("odd", "bias"), ("second", "conv")))
    source = low_rank(SPECS, noise=0.1)

    def work(group: ThreadGroup) -> tuple[list[Gradients], int]:
        engine, means = simulation.engine(group), []
        for step in range(2 * CYCLE):
            gradients = source(step, group.rank)
            if step == at and group.rank == 1:
                gradients["conv"][2, 3, 1, 1] = bad
            means.append(simulation.step(engine, gradients))
        return means, engine.finite_steps

    (first, steps), (second, _) = run_ranks(2, work)
    assert_ranks_agree([first, second])
    finite = math.isfinite(bad)
    assert steps == 2 * CYCLE - (not finite)
    assert bool(torch.isfinite(first[at]["conv"]).all()) == finite
    for step, means in enumerate(first):
        if step != at and not finite:
            expected = true_mean(source, step, 2)
            assert all((means[n] - expected[n]).norm() < 0.3 * expected[n].norm() for n in ("conv", "odd"))


def test_what_was_dropped_is_kept_and_flushed() -> None:
    """feedback="residual": E2, the residual grows while compressed and is gone after a sample step."""
    source = gaussian(SPECS)
    simulation = Simulation(CODEC, SPECS, 2, feedback="residual")

    def work(group: ThreadGroup) -> tuple[list[float], Tensor, Tensor]:
        engine, norms = simulation.engine(group), []
        sent = torch.zeros(1000)
        true = torch.zeros(1000)
        for step in range(CYCLE + 1):
            sent += simulation.step(engine, source(step, group.rank))["odd"]
            true += true_mean(source, step, 2)["odd"]
            norms.append(float(engine.feedbacks["residual"].state()["residual"]["odd"].norm()))
        return norms, sent, true

    for norms, sent, true in run_ranks(2, work):
        assert max(norms[:LT]) < 1e-4
        assert norms[LT] > 10
        assert all(norm < math.sqrt(1000) * P for norm in norms)
        assert norms[CYCLE] < 1e-4
        torch.testing.assert_close(sent, true, rtol=0, atol=1e-4)


def test_the_flush_is_no_sample() -> None:
    """The first mean behind a compressed phase carries all that was held back."""
    simulation = Simulation(CODEC, SPECS, 1)
    for steps, expected in ((1, 1), (LT, LT), (CYCLE + 1, 0), (CYCLE + LT, LT - 1)):
        engine, _ = engine_after(simulation, gaussian(SPECS), steps)[0]
        count = float(engine.learned["odd"][f"{OWNED}memory count"])
        assert count == expected * (1000 // M)
