"""Local steps, on threads: the outer step is the papers', fragments have their turns, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import thinwire as tw
from thinwire.errors import PlanError, StateError
from thinwire.groups.thread import ThreadGroup, run_ranks

WORLD = 3


def net(seed: int = 0) -> nn.Module:
    """Drawn from a generator of its own: ranks are threads, and torch's one is everybody's."""
    made, draw = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 40)), torch.Generator()
    draw.manual_seed(seed)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=draw) * 0.2)
    return made


def local_step(model: nn.Module, optimizer: torch.optim.Optimizer, rank: int, step: int) -> None:
    draw = torch.Generator().manual_seed(1000 * rank + step)
    x, y = torch.randn(16, 20, generator=draw), torch.randn(16, 40, generator=draw)
    optimizer.zero_grad()
    nn.functional.mse_loss(model(x), y).backward()
    optimizer.step()


def flat(model: nn.Module) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def train(group: ThreadGroup, steps: int, **options: Any) -> tuple[Tensor, tw.Report]:
    model = net(seed=group.rank)  # different at first: all take those of rank 0
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tw.DiLoCo(model, group=group, **options) as diloco:
        for step in range(steps):
            local_step(model, optimizer, group.rank, step)
            diloco.step()
        return flat(model), diloco.report()


def by_hand(rounds: int, every: int, lr: float, momentum: float) -> Tensor:
    """DiLoCo's algorithm 1, written down once more."""
    start, v = flat(net()), torch.zeros_like(flat(net()))
    for turn in range(rounds):
        deltas = []
        for rank in range(WORLD):
            model = net()
            nn.utils.vector_to_parameters(start.clone(), model.parameters())
            optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
            for step in range(turn * every, (turn + 1) * every):
                local_step(model, optimizer, rank, step)
            deltas.append(start - flat(model))
        mean = torch.stack(deltas).mean(0)
        v = momentum * v + mean
        start = start - lr * (mean + momentum * v)
    return start


@pytest.mark.parametrize(("lr", "momentum"), [(0.7, 0.9), (1.0, 0.0)])
def test_the_outer_step_is_the_papers(lr: float, momentum: float) -> None:
    options = {"every": 4, "codec": "dense", "outer_lr": lr, "outer_momentum": momentum}
    results = run_ranks(WORLD, lambda group: train(group, 12, **options))
    for parameters, report in results:
        assert torch.equal(parameters, results[0][0])
        assert report.steps == 3
    assert torch.allclose(results[0][0], by_hand(3, 4, lr, momentum), atol=1e-5)


@pytest.mark.parametrize("codec", ["qsgd:4", "terngrad", "topk:0.1", "sparseloco"])
def test_codecs_end_near_dense_with_the_same_bits_on_all_ranks(codec: str) -> None:
    options: dict[str, Any] = {"every": 5, "outer_lr": 1.0, "outer_momentum": 0.0, "min_numel": 64}
    dense = run_ranks(WORLD, lambda group: train(group, 50, codec="dense", **options))[0][0]
    results = run_ranks(WORLD, lambda group: train(group, 50, codec=codec, **options))
    assert all(torch.equal(parameters, results[0][0]) for parameters, _ in results)
    moved = (dense - flat(net())).norm()
    assert (results[0][0] - dense).norm() < 0.6 * moved
    assert results[0][1].ratio > 3


@pytest.mark.parametrize("overlap", [0, 2])
def test_fragments_have_their_turn_in_every_round(overlap: int) -> None:
    def work(group: ThreadGroup) -> tuple[list[int], Tensor, int]:
        model = net()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        took = []
        with tw.DiLoCo(model, every=8, codec="qsgd:4", group=group, fragments=2, overlap=overlap) as diloco:
            for step in range(24):
                local_step(model, optimizer, group.rank, step)
                if diloco.step():
                    took.append(step + 1)
            start = torch.cat([t.flatten() for t in diloco._start.values()])
        return took, start, diloco.report().steps  # closed: what was on its way has arrived

    results = run_ranks(WORLD, work)
    turns = [4, 8, 12, 16, 20, 24]
    assert results[0][0] == [turn + overlap for turn in turns if turn + overlap <= 24]
    assert results[0][2] == 6
    assert all(torch.equal(start, results[0][1]) for _, start, _ in results)


def resumed(group: ThreadGroup, codec: str, gather: bool) -> tuple[Tensor, Tensor]:
    model, ends = net(), []
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    options: dict[str, Any] = {"every": 4, "codec": codec, "group": group, "min_numel": 64}
    with tw.DiLoCo(model, **options) as diloco:
        for step in range(8):
            local_step(model, optimizer, group.rank, step)
            diloco.step()
        assert diloco.synced
        saved, state = flat(model), diloco.state_dict(gather=gather)
        for step in range(8, 16):
            local_step(model, optimizer, group.rank, step)
            diloco.step()
        ends.append(flat(model))
    other = net(seed=5)
    with tw.DiLoCo(other, **options) as diloco:
        nn.utils.vector_to_parameters(saved.clone(), other.parameters())
        diloco.load_state_dict(state)
        optimizer = torch.optim.SGD(other.parameters(), lr=0.1)
        for step in range(8, 16):
            local_step(other, optimizer, group.rank, step)
            diloco.step()
        ends.append(flat(other))
    return ends[0], ends[1]


@pytest.mark.parametrize("gather", [False, True])
@pytest.mark.parametrize("codec", ["qsgd:4", "sparseloco"])
def test_a_resumed_run_has_the_same_bits(codec: str, gather: bool) -> None:
    for straight, again in run_ranks(WORLD, lambda group: resumed(group, codec, gather)):
        assert torch.equal(straight, again)


def test_a_rank_that_diverged_costs_a_round_and_nothing_else() -> None:
    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        model = net()
        with tw.DiLoCo(model, every=1, codec="topk:0.1", group=group, min_numel=64) as diloco:
            with torch.no_grad():
                next(model.parameters()).add_(1.0)
            diloco.step()
            before = flat(model)
            if group.rank == 1:
                with torch.no_grad():
                    next(model.parameters())[0, 0] = float("nan")
            diloco.step()
            return before, flat(model)

    for before, after in run_ranks(WORLD, work):
        assert torch.equal(before, after)


def alone(**options: Any) -> tw.DiLoCo:
    return tw.DiLoCo(net(), group=ThreadGroup.make(1)[0], **{"every": 10, **options})


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"every": 0}, "every=0 must be a number of local steps, at least 1"),
        ({"every": 2.5}, "every=2.5"),
        ({"outer_lr": 0}, "outer_lr=0"),
        ({"outer_momentum": 1.0}, "outer_momentum=1"),
        ({"fragments": 11}, "fragments=11 must be at least 1 and at most every=10"),
        ({"fragments": 5}, "fragments=5 are more than the 4 tensors"),
        ({"overlap": 10}, "overlap=10"),
        ({"mix": 1.0}, "mix=1"),
    ],
)
def test_bad_settings_are_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(PlanError, match=words):
        alone(**options)


def test_ranks_with_different_numbers_of_local_steps_are_refused() -> None:
    def work(group: ThreadGroup) -> str:
        try:
            tw.DiLoCo(net(), group=group, every=10 + group.rank // 2)
        except PlanError as error:
            return str(error)
        return ""

    for text in run_ranks(WORLD, work):
        assert "rank 0 has every=10" in text
        assert "rank 2 has every=11" in text


def test_states_of_other_runs_are_refused() -> None:
    with alone() as diloco, alone(every=5) as other:
        with pytest.raises(StateError, match="made with every=10"):
            other.load_state_dict(diloco.state_dict())
        with pytest.raises(StateError, match="no state of local steps"):
            other.load_state_dict({})


def test_a_fragment_on_its_way_cannot_be_saved() -> None:
    with alone(every=4, overlap=2) as diloco:
        for _ in range(4):
            diloco.step()
        with pytest.raises(StateError, match="on its way"):
            diloco.state_dict()


def test_outer_parameters_that_drift_apart_are_found() -> None:
    def work(group: ThreadGroup) -> str:
        model = net()
        diloco = tw.DiLoCo(model, every=1, codec="dense", group=group, check_every=2)
        try:
            for step in range(4):
                if group.rank == 1 and step == 1:
                    next(iter(diloco._start.values())).add_(1.0)
                diloco.step()
        except tw.ThinwireError as error:
            return str(error)
        finally:
            diloco.close()
        return ""

    texts = run_ranks(WORLD, work)
    assert any("parameters have drifted apart" in text and "rank 1" in text for text in texts)


class Watch:
    """A clock that a test moves: local steps and exchanges take what it says."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def adapting(group: ThreadGroup, exchange_s: float, steps: int) -> list[int]:
    """The lengths of the rounds where a local step takes a second and an exchange `exchange_s`."""
    model, watch = net(), Watch()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with tw.DiLoCo(model, group=group, every="auto", clock=watch) as diloco:
        take, lengths = diloco._take, [diloco.every]

        def taken(fragment: int, mix: float = 0.0) -> None:
            take(fragment, mix)
            watch.now_s += exchange_s + 5 * (group.rank == 0)  # rank 0 came early and waited

        diloco._take = taken  # type: ignore[method-assign]
        for step in range(steps):
            local_step(model, optimizer, group.rank, step)
            watch.now_s += 1.0 - 0.5 * (group.rank == 0)
            if diloco.step():
                lengths.append(diloco.every)
        assert diloco.local_steps == steps
        return lengths


@pytest.mark.parametrize(("exchange_s", "every"), [(3.0, 27), (0.05, 1), (1e6, 500)])
def test_auto_makes_as_few_local_steps_as_the_link_allows(exchange_s: float, every: int) -> None:
    ranks = run_ranks(WORLD, lambda group: adapting(group, exchange_s, 40))
    assert all(lengths[:2] == [10, every] for lengths in ranks)
    assert all(set(lengths[1:]) == {every} for lengths in ranks)  # the same times: the same length


def test_the_length_of_a_round_is_saved() -> None:
    def work(group: ThreadGroup) -> tuple[int, bool]:
        model, watch = net(), Watch()
        with tw.DiLoCo(model, group=group, every="auto", clock=watch) as diloco:
            for _ in range(10):
                watch.now_s += 1.0
                diloco.step()
            diloco.every = 7
            state = diloco.state_dict(gather=True)
        with tw.DiLoCo(net(), group=group, every="auto") as again:
            again.load_state_dict(state)
            return again.every, again.synced

    assert run_ranks(WORLD, work) == [(7, True)] * WORLD


def test_auto_needs_whole_rounds() -> None:
    with pytest.raises(PlanError, match='every="auto" measures whole rounds'):
        tw.DiLoCo(net(), every="auto", fragments=2)
    with pytest.raises(PlanError, match='or "auto"'):
        tw.DiLoCo(net(), every="atuo")  # type: ignore[arg-type]
