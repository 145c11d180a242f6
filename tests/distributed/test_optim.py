"""1-bit Adam over a real DDP model: it switches the all-reduce off, and refuses a model under `compress`."""

from __future__ import annotations

import torch
from launch import Teams
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training import mlp

import thinwire as tw
from thinwire.errors import PlanError


def trained(steps: int) -> tuple[Tensor, int, int]:
    model = DistributedDataParallel(mlp())
    optimizer = tw.optim.OneBitAdam(model, lr=1e-3, freeze_step=2)
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    for _ in range(steps):
        x = torch.randn(8, next(model.parameters()).shape[1], generator=generator)
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
    sent, dense = optimizer.sent_bytes, optimizer.dense_bytes
    optimizer.close()
    return torch.cat([p.detach().flatten() for p in model.parameters()]), sent, dense


def refused() -> str:
    model = DistributedDataParallel(mlp())
    with tw.compress(model, "terngrad"):
        try:
            tw.optim.OneBitAdam(model, lr=1e-3, freeze_step=2)
        except PlanError as error:
            return str(error)
    return ""


def test_processes_end_with_the_same_bits_and_send_less(teams: Teams) -> None:
    (first, sent, dense), *others = teams(3).run(trained, 12)
    assert all(torch.equal(first, other) for other, _, _ in others)
    assert first.isfinite().all()
    assert sent < dense / 2


def test_a_model_under_compress_is_refused(teams: Teams) -> None:
    for said in teams(2).run(refused):
        assert "leave out tw.compress" in said
