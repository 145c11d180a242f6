"""Ranks that no longer hold the same parameters are told, named, and repaired if that is wanted."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
import torch.distributed as dist
from launch import NewTeam, Teams
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training import batch, descend, fit, loss_of, mlp, wrap

import thinwire as tw
from thinwire.errors import PlanError
from thinwire.exchange.drift import digest

ODD = (67, 131)  # sizes at which vector code of a BLAS ends in another place with every number of threads


def flip(parameter: Tensor, bit: int) -> None:
    with torch.no_grad():
        parameter.view(-1)[5:6].view(torch.int32).bitwise_xor_(1 << bit)


def drifting(on_drift: str, bit: int) -> tuple[str, list[str], Tensor]:
    """4 steps, a flipped bit on rank 1 after the second: the error, the warnings, the parameters."""
    with (
        wrap(mlp(), "terngrad", check_every=1, on_drift=on_drift) as it,
        warnings.catch_warnings(record=True) as got,
    ):
        warnings.simplefilter("always")
        error = ""
        try:
            fit(it.model, 2)
            if dist.get_rank() == 1:
                flip(dict(it.model.module.named_parameters())["2.weight"], bit)
            fit(it.model, 2, start=2)
        except tw.ThinwireError as caught:
            error = f"{type(caught).__name__}: {caught}"
        return error, [str(one.message) for one in got], it.parameters()


@pytest.mark.parametrize("bit", [0, 31])
def test_a_flipped_bit_is_told_on_every_rank(new_team: NewTeam, bit: int) -> None:
    for error, _, _ in new_team(3).run(drifting, "raise", bit):
        assert error.startswith("DriftError: parameters have drifted apart: after 3 steps rank 1 and rank 0")
        assert "in 1 of 6 tensors, first in 2.weight" in error


def test_it_may_only_be_warned_of(new_team: NewTeam) -> None:
    answers = new_team(2).run(drifting, "warn", 3)
    for error, told, _ in answers:
        assert error == ""
        assert any("drifted apart: after 3 steps" in text for text in told)
    assert not torch.equal(answers[0][2], answers[1][2])


def test_it_can_be_repaired(new_team: NewTeam) -> None:
    answers = new_team(3).run(drifting, "repair", 30)
    for error, told, parameters in answers:
        assert error == ""
        assert sum("repaired from rank 0" in text for text in told) == 1
        assert torch.equal(parameters, answers[0][2])


def thawed(on_ranks: list[int]) -> tuple[str, bool]:
    """A layer that is trained from step 3 on, by a DDP model that was built while it was frozen."""
    net = nn.Sequential(nn.Linear(20, 16), nn.Linear(16, 16), nn.Linear(16, 10))
    for parameter in net.parameters():
        nn.init.constant_(parameter, 0.1)
    net[1].requires_grad_(False)
    with wrap(net, "terngrad", check_every=5, keep_dense=()) as it:
        try:
            fit(it.model, 2)
            if dist.get_rank() in on_ranks:
                net[1].requires_grad_(True)
            fit(it.model, 20, start=2)
        except tw.ThinwireError as caught:
            return f"{type(caught).__name__}: {caught}", True
        return "", False


@pytest.mark.parametrize("on_ranks", [[0, 1], [1]])
def test_a_layer_thawed_after_ddp_was_built_is_told(new_team: NewTeam, on_ranks: list[int]) -> None:
    """DDP does not send its gradients: every rank goes its own way."""
    for error, _ in new_team(2).run(thawed, on_ranks):
        assert error.startswith("DriftError: parameters have drifted apart: after 5 steps rank 1 and rank 0")
        assert "in 2 of 6 tensors, first in 1.weight" in error
        if on_ranks == [0, 1]:
            assert "1.weight was frozen when DistributedDataParallel was built" in error
            assert "wrap the net" in error


def frozen_and_ignored() -> Tensor:
    """What DDP does not keep equal may differ: a frozen layer, and one it was told to ignore."""
    ignored, frozen, last = nn.Linear(20, 16), nn.Linear(16, 16), nn.Linear(16, 10)
    net = nn.Sequential(ignored, frozen, last)
    frozen.requires_grad_(False)
    DistributedDataParallel._set_params_and_buffers_to_ignore_for_model(net, ["0.bias"])
    torch.manual_seed(dist.get_rank())
    with wrap(net, "terngrad", check_every=1, keep_dense=()) as it:
        nn.init.normal_(ignored.bias)
        nn.init.normal_(frozen.weight)
        fit(it.model, 3)
        return last.weight.detach()


def test_only_what_ddp_keeps_equal_is_compared(teams: Teams) -> None:
    assert all(weight.isfinite().all() for weight in teams(2).run(frozen_and_ignored))


def shadowed() -> int:
    """Rank 0 has fewer inputs: its parameters stay behind while it shadows, which is nobody's drift."""
    from torch.distributed.algorithms.join import Join

    model = DistributedDataParallel(mlp())
    with tw.compress(model, "terngrad", check_every=1) as compressor:
        with Join([model]):
            for step in range(2 if dist.get_rank() == 0 else 5):
                loss_of(model(batch(step, 20))).backward()
                descend(model)
        return compressor.engine.step


def test_a_rank_without_inputs_has_not_drifted(teams: Teams) -> None:
    assert teams(2).run(shadowed) == [5, 5]


def threads_of_its_own(codec: Any, options: dict[str, Any]) -> Tensor:
    """Rank 0 with one thread, the others with four, layers of odd sizes."""
    torch.set_num_threads(1 if dist.get_rank() == 0 else 4)
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(20, ODD[0]), nn.Tanh(), nn.Linear(*ODD), nn.Tanh(), nn.Linear(ODD[1], 10))
    with wrap(net, codec, keep_dense=(), check_every=1, **options) as it:
        fit(it.model, 12)
        return it.parameters()


CODECS = (
    "terngrad",
    "qsgd:4",
    "sign",
    "topk:0.05",
    "fft:0.85",
    "rangefloat:8",
    "powersgd:4",
    "gradiveq:8,slice=64,sample=3,compress=5,layers=all",
)


@pytest.mark.parametrize("codec", CODECS)
def test_ranks_with_other_numbers_of_threads_stay_equal(new_team: NewTeam, codec: str) -> None:
    answers = new_team(2).run(threads_of_its_own, codec, {})
    assert torch.equal(answers[0], answers[1])


def nameless() -> str:
    try:
        tw.ddp_hook("fp16", check_every=10)
    except PlanError as error:
        return str(error)
    return ""


def test_without_a_model_it_says_that_it_cannot_check(teams: Teams) -> None:
    for told in teams(2).run(nameless):
        assert "without the model parameters cannot be compared" in told


@pytest.mark.parametrize("numel", [0, 1, 3, 8192, 8193, 50_001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_every_bit_counts(numel: int, dtype: torch.dtype) -> None:
    x = torch.randn(numel, generator=torch.Generator().manual_seed(0)).to(dtype)
    own = digest(x)
    assert digest(x.clone()) == own
    data = x.view(torch.uint8)
    for place in {0, data.numel() // 2, data.numel() - 1} if numel else set():
        for bit in (0, 7):
            other = data.clone()
            other[place] ^= 1 << bit
            assert digest(other) != own
