"""1-bit Adam and 0/1 Adam on the exchange: the published algorithms, saved and resumed; what is refused."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from adam_references import Reference, one_bit_adam, zero_one_adam
from torch import Tensor, nn

import thinwire as tw
from simulation import same_bits
from thinwire.errors import CodecError, PlanError, StateError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.optim.exchanging import ExchangingAdam

WORLD, STEPS, LR = 3, 50, 0.01
FREEZE = 8
SEED = 15838  # with which no number is so near 0 that float32 and float64 differ in its sign
SHAPES = {"0.weight": (40, 30), "0.bias": (40,), "2.weight": (7, 40), "2.bias": (7,)}
Make = Callable[[nn.Module, ThreadGroup], ExchangingAdam]


def net(seed: int = 0) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(30, 40), nn.ReLU(), nn.Linear(40, 7))


def one_bit(model: nn.Module, group: ThreadGroup) -> ExchangingAdam:
    return tw.optim.OneBitAdam(model, LR, freeze_step=FREEZE, weight_decay=0.01, group=group)


def zero_one(model: nn.Module, group: ThreadGroup) -> ExchangingAdam:
    return tw.optim.ZeroOneAdam(
        model,
        LR,
        var_freeze_step=20,
        weight_decay=0.01,
        var_update_scaler=2,
        local_step_scaler=6,
        local_step_clipper=4,
        group=group,
    )


BOTH = pytest.mark.parametrize("make", [one_bit, zero_one])


def gradient(step: int, rank: int, p: Tensor) -> Tensor:
    """Of a noisy bowl, far from its bottom: no variance is nearly 0. Some elements never have any gradient.

    Noise is float32: the same in both precisions.
    """
    generator = torch.Generator().manual_seed(SEED + 1000 * step + rank)
    noise = torch.randn(p.shape, generator=generator)
    far = 2.0 - 4.0 * (torch.arange(len(p)) % 2)
    found = p + far + 0.7 * noise.to(p.dtype)
    found[5:9] = 0.0
    return found


def flat(model: nn.Module) -> Tensor:
    return torch.cat([p.detach().flatten() for p in model.parameters()])


def give(model: nn.Module, step: int, rank: int) -> None:
    parts = gradient(step, rank, flat(model)).split([p.numel() for p in model.parameters()])
    for p, part in zip(model.parameters(), parts, strict=True):
        p.grad = part.view_as(p)


def trained(make: Make, steps: int = STEPS, stop: int | None = None, gather: bool = False) -> list[Any]:
    """Parameters and bytes by rank; with `stop` a state is saved there and loaded into new objects."""
    models = [net() for _ in range(WORLD)]

    def work(group: ThreadGroup) -> tuple[Tensor, int, int]:
        model = models[group.rank]
        optimizer = make(model, group)
        for step in range(steps):
            if step == stop:
                state, weights = optimizer.state_dict(gather=gather), model.state_dict()
                model = net(seed=9) if not group.rank else model
                model.load_state_dict(weights)
                optimizer = make(model, group)
                optimizer.load_state_dict(state)
            give(model, step, group.rank)
            optimizer.step()
        return flat(model), optimizer.sent_bytes, optimizer.dense_bytes

    return run_ranks(WORLD, work)


def expected(make: Make) -> Tensor:
    reference = Reference(flat(net()), SHAPES, WORLD, 0.01)
    if make is one_bit:
        return one_bit_adam(reference, gradient, STEPS, LR, FREEZE)
    return zero_one_adam(reference, gradient, STEPS, LR, freeze=20, scaler=2, local=6)


@BOTH
def test_it_is_the_published_algorithm(make: Make) -> None:
    found = torch.stack([p for p, _, _ in trained(make)])
    torch.testing.assert_close(found.double(), expected(make), rtol=1e-6, atol=1e-6)
    assert (found[0] - flat(net())).abs().max() > 10 * LR


@BOTH
@pytest.mark.parametrize(("stop", "gather"), [(4, False), (30, False), (31, False), (30, True)])
def test_a_resumed_run_ends_with_the_same_bits(make: Make, stop: int, gather: bool) -> None:
    for (one, _, _), (two, _, _) in zip(trained(make), trained(make, stop=stop, gather=gather), strict=True):
        assert same_bits(one, two)


def test_ranks_end_with_the_same_bits() -> None:
    ranks = trained(one_bit)
    assert all(same_bits(ranks[0][0], p) for p, _, _ in ranks)


@BOTH
def test_it_sends_five_times_fewer_bytes(make: Make) -> None:
    """With a tenth of the steps exact, on a net of a usual size."""

    def work(group: ThreadGroup) -> tuple[int, int]:
        torch.manual_seed(0)
        model = nn.Linear(300, 300)
        if make is one_bit:
            optimizer: ExchangingAdam = tw.optim.OneBitAdam(model, LR, freeze_step=6, group=group)
        else:
            optimizer = tw.optim.ZeroOneAdam(model, LR, 40, var_update_scaler=2, group=group)
        for step in range(60):
            give(model, step, group.rank)
            optimizer.step()
        return optimizer.sent_bytes, optimizer.dense_bytes

    sent, dense = run_ranks(WORLD, work)[0]
    assert dense >= 5 * sent


def test_a_step_that_is_not_finite_is_skipped_on_all_ranks() -> None:
    models = [net() for _ in range(WORLD)]

    def work(group: ThreadGroup) -> tuple[bool, Tensor]:
        model = models[group.rank]
        optimizer = one_bit(model, group)
        kept = True
        for step in range(FREEZE + 4):
            give(model, step, group.rank)
            bad = step in (2, FREEZE + 2)
            if bad and group.rank == 1:
                for p in model.parameters():
                    p.grad = torch.full_like(p, float("inf"))
            before = flat(model)
            optimizer.step()
            kept &= same_bits(before, flat(model)) == bad
        return kept, flat(model)

    ranks = run_ranks(WORLD, work)
    assert all(kept and same_bits(p, ranks[0][1]) and p.isfinite().all() for kept, p in ranks)


def alone(make: Callable[[ThreadGroup], object]) -> None:
    run_ranks(1, make)


def test_a_codec_of_its_own_is_refused() -> None:
    with pytest.raises(PlanError, match="sends signs, and has no other codec"):
        alone(lambda group: tw.optim.OneBitAdam(net(), LR, 5, group=group, codec="terngrad"))  # type: ignore
    with pytest.raises(PlanError, match="sends signs, and has no other codec"):
        alone(lambda group: tw.optim.ZeroOneAdam(net(), LR, 5, group=group, codec="qsgd:4"))  # type: ignore


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"freeze_step": 0}, "freeze_step=0 must be at least 1"),
        ({"lr": -1.0}, "lr=-1.0 must be at least 0"),
        ({"betas": (0.9, 1.0)}, "must be from 0 to less than 1"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], says: str) -> None:
    given = {"lr": LR, "freeze_step": 5, **options}
    with pytest.raises(PlanError, match=says):
        alone(lambda group: tw.optim.OneBitAdam(net(), group=group, **given))


def test_other_parameters_are_refused() -> None:
    with pytest.raises(PlanError, match=r"is torch\.bfloat16: momentum travels as float32"):
        alone(lambda group: tw.optim.OneBitAdam(net().bfloat16(), LR, 5, group=group))
    groups = [{"params": list(net().parameters())}]
    with pytest.raises(PlanError, match="a parameter that is not the model's"):
        alone(lambda group: tw.optim.OneBitAdam(net(), LR, 5, params=groups, group=group))


def test_the_state_of_another_optimizer_is_refused() -> None:
    def work(group: ThreadGroup) -> None:
        state = torch.optim.AdamW(net().parameters()).state_dict()
        with pytest.raises(StateError, match="the state is of another optimizer, this is OneBitAdam"):
            one_bit(net(), group).load_state_dict(state)
        other = zero_one(net(), group).state_dict()
        with pytest.raises(StateError, match="the state is of ZeroOneAdam, this is OneBitAdam"):
            one_bit(net(), group).load_state_dict(other)

    alone(work)


def test_rms_is_for_blocks() -> None:
    with pytest.raises(CodecError, match="values=rms is for blocks"):
        tw.parse("sign:values=rms,block=column")
