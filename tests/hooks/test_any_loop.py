"""The exchange for any loop, on threads: means, parts in turn, state, and what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import thinwire as tw
from thinwire.errors import PlanError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.hooks.ddp import refuse_module
from thinwire.tensors import Spec

WORLD = 3


def tensors(rank: int, step: int = 0) -> dict[str, Tensor]:
    draw = torch.Generator().manual_seed(10 * step + rank)
    w, b, h = (torch.randn(shape, generator=draw) for shape in ((64, 40), (64,), (2000,)))
    return {"w": w, "b": b, "h": h.to(torch.bfloat16)}


LAYOUTS = [
    tw.Layout.packed([Spec("w", (64, 40)), Spec("b", (64,))]),
    tw.Layout.packed([Spec("h", (2000,), torch.bfloat16)]),
]


def mean_of(name: str, step: int = 0) -> Tensor:
    return torch.stack([tensors(rank, step)[name].float() for rank in range(WORLD)]).mean(0)


def on_ranks(work: Callable[[ThreadGroup], Any]) -> list[Any]:
    return run_ranks(WORLD, work)


def test_dense_tensors_become_their_means() -> None:
    def work(group: ThreadGroup) -> dict[str, Tensor]:
        mine = tensors(group.rank)
        with tw.Exchange(mine, "dense", group) as exchange:
            exchange.mean_()
        return mine

    for mine in on_ranks(work):
        assert torch.allclose(mine["w"], mean_of("w"), atol=1e-6)
        assert torch.allclose(mine["h"].float(), mean_of("h"), atol=0.02)


@pytest.mark.parametrize("codec", ["terngrad", "qsgd:4", "topk:0.1", "sign"])
def test_all_ranks_get_the_same_bits(codec: str) -> None:
    def work(group: ThreadGroup) -> tuple[dict[str, Tensor], float]:
        mine = tensors(group.rank)
        with tw.Exchange(mine, codec, group) as exchange:
            exchange.start()
            exchange.wait()
            report = exchange.report()
            assert report.bytes_per_step == exchange.plan.step_bytes([LAYOUTS[0], LAYOUTS[1]])
        return mine, report.ratio

    results = on_ranks(work)
    for mine, ratio in results:
        assert all(torch.equal(mine[name], results[0][0][name]) for name in mine)
        assert ratio > 1.5


def test_what_is_held_back_comes_with_the_next_mean() -> None:
    """Sum over steps of what was sent tends to the sum of the means: nothing is lost."""

    def work(group: ThreadGroup) -> Tensor:
        mine = {"w": torch.randn(100, 100, generator=torch.Generator().manual_seed(group.rank))}
        first, total = mine["w"].clone(), torch.zeros(100, 100)
        with tw.Exchange(mine, "topk:0.2", group) as exchange:
            for _ in range(40):
                mine["w"].copy_(first)
                exchange.mean_()
                total += mine["w"]
        return total / 40

    expected = torch.stack(
        [torch.randn(100, 100, generator=torch.Generator().manual_seed(r)) for r in range(WORLD)]
    ).mean(0)
    got = on_ranks(work)[0]
    assert (got - expected).norm() < 0.1 * expected.norm()


def test_some_of_the_tensors_and_others_under_their_names() -> None:
    def work(group: ThreadGroup) -> tuple[Tensor, Tensor, Tensor]:
        mine, other = tensors(group.rank), tensors(group.rank, step=1)
        kept = mine["b"].clone()
        with tw.Exchange(mine.items(), "dense", group) as exchange:
            exchange.mean_({"w": other["w"]})
        assert torch.equal(mine["w"], tensors(group.rank)["w"])
        return other["w"], mine["b"], kept

    for w, b, kept in on_ranks(work):
        assert torch.allclose(w, mean_of("w", 1), atol=1e-6)
        assert torch.equal(b, kept)


def test_a_resumed_exchange_has_the_same_bits() -> None:
    def work(group: ThreadGroup) -> tuple[Tensor, Tensor]:
        ends = []
        mine = tensors(group.rank)
        with tw.Exchange(mine, "topk:0.1", group, seed=3) as exchange:
            exchange.mean_()
            state = exchange.state_dict()
            _fill(mine, tensors(group.rank, 1))
            exchange.mean_()
            ends.append(mine["w"].clone())
        with tw.Exchange(mine, "topk:0.1", group, seed=3) as exchange:
            exchange.load_state_dict(state)
            _fill(mine, tensors(group.rank, 1))
            exchange.mean_()
            ends.append(mine["w"].clone())
        return ends[0], ends[1]

    for straight, resumed in on_ranks(work):
        assert torch.equal(straight, resumed)


def _fill(mine: dict[str, Tensor], other: dict[str, Tensor]) -> None:
    for name, tensor in mine.items():
        tensor.copy_(other[name])


def test_nan_on_one_rank_reaches_all_and_nothing_of_it_is_held_back() -> None:
    def work(group: ThreadGroup) -> tuple[bool, Tensor]:
        mine = tensors(group.rank)
        with tw.Exchange(mine, "topk:0.1", group) as exchange:
            exchange.mean_()
            before = exchange.engine.feedbacks["residual"].state()["residual"]["w"]
            _fill(mine, tensors(group.rank, 1))
            if group.rank == 1:
                mine["w"][3, 4] = float("nan")
            exchange.mean_()
            after = exchange.engine.feedbacks["residual"].state()["residual"]["w"]
        assert torch.equal(before, after)
        return bool(mine["w"].isfinite().all()), mine["w"]

    results = on_ranks(work)
    assert not any(finite for finite, _ in results)


@pytest.mark.parametrize(
    ("named", "words"),
    [
        ({}, "at least one tensor"),
        ([("w", torch.zeros(2)), ("w", torch.zeros(2))], 'two tensors are called "w"'),
        ({"w": 3}, "w is a int"),
        ({"w": torch.zeros(3, 3).to_sparse()}, "to_dense"),
        ({"w": torch.zeros(3, dtype=torch.int64)}, "thinwire sends float32"),
        (
            {"w": torch.zeros(3), "v": torch.zeros(3, device="meta")},
            "on cpu, meta: make an Exchange for each",
        ),
    ],
)
def test_bad_tensors_are_refused(named: Any, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        tw.Exchange(named, "dense", ThreadGroup.make(1)[0])


def test_a_model_on_several_devices_is_refused() -> None:
    halves = torch.nn.ModuleList([torch.nn.Linear(2, 2), torch.nn.Linear(2, 2, device="meta")])
    with pytest.raises(PlanError, match="parameters are on cpu, meta: only a model on one device"):
        refuse_module(halves)
    refuse_module(halves.requires_grad_(False))


def test_one_tensor_has_one_name() -> None:
    w = torch.zeros(3)
    with pytest.raises(PlanError, match="one tensor has several names"):
        tw.Exchange({"a": w, "b": w}, "dense", ThreadGroup.make(1)[0])


def test_auto_is_refused_by_name() -> None:
    with pytest.raises(PlanError, match='"auto" measures the backward pass'):
        tw.Exchange({"w": torch.zeros(3)}, "auto", ThreadGroup.make(1)[0])


def test_start_and_wait_come_in_pairs() -> None:
    with tw.Exchange({"w": torch.zeros(3)}, "dense", ThreadGroup.make(1)[0]) as exchange:
        with pytest.raises(PlanError, match=r"wait\(\) without start\(\)"):
            exchange.wait()
        exchange.start()
        with pytest.raises(PlanError, match="twice"):
            exchange.start()
        exchange.wait()


def test_a_tensor_that_changed_its_shape_ends_it() -> None:
    exchange = tw.Exchange({"w": torch.zeros(3, 4)}, "dense", ThreadGroup.make(1)[0])
    with pytest.raises(PlanError, match=r"w has changed: .* w\[3, 4\]:float32, and it is w\[4, 3\]"):
        exchange.mean_({"w": torch.zeros(4, 3)})
    assert exchange.failed
    exchange.close()


def test_an_unknown_name_is_refused() -> None:
    exchange = tw.Exchange({"w": torch.zeros(3, 4)}, "dense", ThreadGroup.make(1)[0])
    with pytest.raises(PlanError, match='no tensor "v"'):
        exchange.mean_({"v": torch.zeros(3, 4)})
    exchange.close()


def test_large_tensors_are_sent_from_where_they_lie() -> None:
    """A large tensor that is contiguous, one that is not, and small ones beside them."""

    def work(group: ThreadGroup) -> tuple[dict[str, Tensor], int]:
        draw = torch.Generator().manual_seed(group.rank)
        large = torch.randn(1 << 10, 1 << 10, generator=draw)
        mine = {"a": large, "b": large.clone().T, "c": torch.full((3, 3), float(group.rank))}
        kept = large.data_ptr()
        with tw.Exchange(mine, "dense", group) as exchange:
            exchange.mean_()
        assert mine["a"].data_ptr() == kept
        return mine, group.rank

    expected = torch.stack(
        [torch.randn(1 << 10, 1 << 10, generator=torch.Generator().manual_seed(r)) for r in range(WORLD)]
    ).mean(0)
    for mine, _ in on_ranks(work):
        assert torch.allclose(mine["a"], expected, atol=1e-5)
        assert torch.allclose(mine["b"].T, expected, atol=1e-5)
        assert torch.equal(mine["c"], torch.ones(3, 3))
