"""Copies of a compressed model (EMA, checkpoints): plain DDP models, with nothing of the original."""

from __future__ import annotations

import copy
import gc
import io
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from launch import Teams
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim.swa_utils import AveragedModel
from training import SMALL_BUCKETS_MB, Wrapped, fit, mlp, wrap

import thinwire as tw


def saved_and_loaded(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


def averaged(model: nn.Module) -> nn.Module:
    average = AveragedModel(model)
    average.update_parameters(model)
    return average.module


WAYS: dict[str, Callable[[nn.Module], nn.Module]] = {
    "deepcopy": copy.deepcopy,
    "a copy of a copy": lambda model: copy.deepcopy(copy.deepcopy(model)),
    "AveragedModel": averaged,
    "torch.save": saved_and_loaded,
}


def by_hook_pair() -> Wrapped:
    net = mlp()
    model = DistributedDataParallel(net, bucket_cap_mb=SMALL_BUCKETS_MB)
    compressor, hook = tw.ddp_hook("topk:0.05", model=net)
    model.register_comm_hook(compressor, hook)
    return Wrapped(model, compressor)


def copied(way: str, pair: bool, codec: str) -> list[bool]:
    """Whether copies are as they should be, and the original trains on as if it had not been copied."""
    build: Callable[[], Any] = by_hook_pair if pair else lambda: wrap(mlp(), codec)
    with build() as undisturbed:
        fit(undisturbed.model, 5)
        expected = undisturbed.parameters()
    it = build()
    fit(it.model, 2)
    before = it.parameters()
    made: Any = WAYS[way](it.model)
    equal = torch.equal(Wrapped(made, None).parameters(), before)
    fit(it.model, 3, 2)
    goes_on = torch.equal(it.parameters(), expected)
    with wrap(mlp(), None) as plain:
        plain.model.module.load_state_dict(made.module.state_dict())
        fit(plain.model, 3, 2)
        fit(made, 3, 2)
        as_plain = torch.equal(Wrapped(made, None).parameters(), plain.parameters())
    old = [weakref.ref(it.model), weakref.ref(it.compressor)]
    del it
    gc.collect()
    forgets = [ref() is None for ref in old]
    with tw.compress(made, "dense"):
        fit(made, 1, 5)
    return [equal, goes_on, as_plain, *forgets]


@pytest.mark.parametrize("codec", ["terngrad", "auto"])
@pytest.mark.parametrize("way", WAYS)
def test_copies_are_plain_and_hold_nothing_of_the_original(teams: Teams, way: str, codec: str) -> None:
    assert teams(2).run(copied, way, False, codec) == [[True] * 5] * 2


def test_with_the_pair_of_state_and_hook(teams: Teams) -> None:
    assert teams(2).run(copied, "torch.save", True, "") == [[True] * 5] * 2
    assert teams(2).run(copied, "deepcopy", True, "") == [[True] * 5] * 2
