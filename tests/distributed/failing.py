"""What ranks do when one of them dies, stops or fails; every function gives what a survivor met."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch.distributed as dist
from rank import Failure
from torch import Tensor, nn
from training import Wrapped, batch, descend, loss_of, mlp, normed, wrap

import thinwire as tw
from thinwire.clock import TRAINING
from thinwire.exchange.transit import Parcel
from thinwire.groups import torch as torch_group

FATAL_STEP = 2  # by then the buckets have been rebuilt
BETWEEN_STEPS = "between steps"
IN_BACKWARD = "in backward"


@dataclass(frozen=True)
class Met:
    """The error of the fatal step, and the errors of the calls after it."""

    first: Failure
    later: tuple[Failure, ...]


def meet(it: Wrapped, before_fatal: Callable[[nn.Module], None], fatal_step: int = FATAL_STEP) -> Met:
    """Trains; `before_fatal` may do its deed before the fatal step, or prepare it."""
    for step in range(fatal_step):
        _train(it.model, step)
    before_fatal(it.model.module)
    first = failure_of(lambda: _train(it.model, fatal_step))
    return Met(first, tuple(failure_of(lambda: _train(it.model, fatal_step + 1)) for _ in range(2)))


def _train(model: nn.Module, step: int) -> None:
    loss_of(model(batch(step, 20))).backward()
    descend(model)


def failure_of(act: Callable[[], Any]) -> Failure:
    try:
        act()
    except Exception as error:
        return Failure.of(error)
    raise AssertionError("nothing was raised")


def signalled(
    number: int,
    victim: int,
    when: str,
    codec: str,
    ddp: dict[str, Any],
    fatal_step: int = FATAL_STEP,
    build: Callable[[], nn.Module] = mlp,
    **options: Any,
) -> Met:
    """The victim sends itself a signal between two steps, or in the middle of the backward pass."""

    def strike(*_: object) -> None:
        os.kill(os.getpid(), number)

    def before_fatal(net: nn.Module) -> None:
        if dist.get_rank() == victim and when == BETWEEN_STEPS:
            strike()
        if dist.get_rank() == victim and when == IN_BACKWARD:
            in_backward_of(net, strike)

    return meet(wrap(build(), codec, ddp, **options), before_fatal, fatal_step)


def in_backward_of(net: nn.Module, act: Callable[..., None]) -> None:
    """Acts when the gradient of the first layer's output is there: by then other buckets are on their way."""

    def on_output(module: nn.Module, inputs: object, output: Tensor) -> None:
        output.register_hook(act)

    first: nn.Module = next(net.children())
    first.register_forward_hook(on_output)


def broken_encode(victim: int, codec: str, **options: Any) -> Met:
    """On the victim encoding raises from the fatal step on."""

    def before_fatal(net: nn.Module) -> None:
        if dist.get_rank() == victim:
            Parcel.encode = _raise  # type: ignore[assignment,method-assign]

    return meet(wrap(mlp(), codec, **options), before_fatal)


def _raise(*_: object) -> None:
    raise ZeroDivisionError("the gradient looked at me in a funny way")


def absent(victim: int) -> Failure | None:
    """The victim never calls compress."""
    net = mlp()
    if dist.get_rank() == victim:
        nn.parallel.DistributedDataParallel(net)
        return None
    return failure_of(lambda: wrap(net, "terngrad"))


def late_for_an_absent(victim: int, late: int, late_s: float) -> Failure | None:
    """The victim never calls compress, one rank calls it late: the others give up before it does."""
    model = nn.parallel.DistributedDataParallel(mlp())
    if dist.get_rank() == victim:
        time.sleep(3600)
    if dist.get_rank() == late:
        time.sleep(late_s)
    return failure_of(lambda: tw.compress(model, "terngrad"))


def lost_while_connecting(victim: int) -> Failure:
    """The victim dies when all ranks have met and connect to each other."""
    model = nn.parallel.DistributedDataParallel(mlp())
    if dist.get_rank() == victim:
        torch_group.Making = lambda *_: os.kill(os.getpid(), signal.SIGKILL)  # type: ignore[assignment,misc]
    return failure_of(lambda: tw.compress(model, "terngrad"))


def failed_alone(failing: int) -> Failure | None:
    """One rank fails between two steps and tries a step more; the others are busy elsewhere."""
    it = wrap(normed(), "terngrad")
    assert it.compressor is not None
    for step in range(FATAL_STEP):
        _train(it.model, step)
    if dist.get_rank() != failing:
        return None
    it.compressor.fail(ValueError("the disk is full"), TRAINING)
    return failure_of(lambda: _train(it.model, FATAL_STEP))
