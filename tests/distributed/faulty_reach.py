"""What ranks do while a fault is injected into an FSDP2 run or into local steps."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from faulty import DEEDS, Ended, digest
from rank import Failure
from sharding import batch, sharded, whole
from torch import Tensor, nn
from training import mlp

import thinwire as tw

STEPS = 12


@dataclass(frozen=True)
class ReachFault:
    """One injection; everything about it follows from its seed."""

    seed: int
    kind: str
    door: str
    codec: str
    place: str
    victim: int
    step: int

    @property
    def mine(self) -> bool:
        return dist.get_rank() == self.victim

    def __str__(self) -> str:
        return f"{self.door}, {self.codec}, rank {self.victim}, {self.place}, step {self.step}"


def strike(fault: ReachFault) -> None:
    """What the victim does."""
    if fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    else:
        DEEDS[fault.kind]()


def arrange(fault: ReachFault, model: nn.Module, step: int, place: str) -> None:
    """The victim's deed, if this is its step and place."""
    if fault.mine and fault.kind != "nan" and (step, place) == (fault.step, fault.place):
        strike(fault)


def a_step(fault: ReachFault, model: nn.Module, step: int, loss_of: Callable[[], Tensor]) -> None:
    """Forward and backward pass, with the deed in one of them."""
    arrange(fault, model, step, "forward")
    loss = loss_of()
    if fault.mine and fault.place == "backward" and step == fault.step and fault.kind != "nan":
        loss.register_hook(lambda gradient: strike(fault))  # type: ignore[no-untyped-call]
    if fault.mine and fault.kind == "nan" and step == fault.step:
        loss = loss * float("nan")
    loss.backward()  # type: ignore[no-untyped-call]


def train_sharded(fault: ReachFault) -> str:
    net = sharded()
    codec, _, weights = fault.codec.partition(" weights=")
    options: dict[str, Any] = {"weights": weights, "keep_weights": True} if weights else {}
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with tw.compress(net, codec, **options):
        for step in range(STEPS):
            arrange(fault, net, step, "between")
            x, y = batch(step)
            a_step(fault, net, step, lambda x=x, y=y: _loss(net, x, y))  # type: ignore[misc]
            norm = torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            if bool(torch.isfinite(norm.full_tensor())):  # type: ignore[attr-defined]
                optimizer.step()
            optimizer.zero_grad()
        return digest(whole(net))


def _loss(net: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())


def train_local(fault: ReachFault) -> str:
    net = mlp()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    with tw.DiLoCo(net, every=3, codec=fault.codec) as diloco:
        for step in range(STEPS):
            draw = torch.Generator().manual_seed(10 * step + dist.get_rank())
            x = torch.randn(8, 20, generator=draw)
            a_step(fault, net, step, lambda x=x: net(x).square().mean())  # type: ignore[misc]
            optimizer.step()
            optimizer.zero_grad()
            arrange(fault, net, step, "before sync")
            diloco.step()
        diloco.sync()
        return digest(dict(net.named_parameters()))


def run_reach(fault: ReachFault) -> Ended:
    """What this rank met."""
    try:
        bits = train_sharded(fault) if fault.door == "fsdp" else train_local(fault)
    except Exception as error:
        named = "\n".join([str(error), *getattr(error, "__notes__", ())])
        failure = Failure.of(error)
        return Ended(Failure(failure.kinds, named, failure.trace), time.monotonic(), 0, True, "")
    return Ended(None, time.monotonic(), STEPS, True, bits)
