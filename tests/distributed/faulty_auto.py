"""What ranks do while a fault is injected under auto or in a hierarchy: train, and say what they met."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from failing import in_backward_of
from faulty import Ended, digest
from own_clock import OTHERS, own_clock
from rank import Failure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training import Wrapped, batch, descend, few_steps, loss_of, mlp, normed

import thinwire as tw
from thinwire.auto.autotuner import Autotuner

WORLD = 4
STEPS = 45  # auto decides within 30 of them, see few_steps, and looks at the link behind that
TABLE = {"dense": 0.02, "topk:0.01": 0.008, "topk:0.01 by nodes": 0.009, "qsgd:4": 0.0095, OTHERS: 0.018}
NETS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "normed": normed}
CALLS = {"probing": "measure", "agreeing": "agree", "switch": "steer", "link": "link_s"}  # of the actions


@dataclass(frozen=True)
class AutoFault:
    """One injection; all of it follows from its seed."""

    seed: int
    kind: str  # kill, exit, leave, raise, stop, nan
    phase: str
    place: str  # in the step: forward, backward, between, exchange; of a call of the actions: before, after
    victim: int
    codec: str
    hierarchy: str | int
    net: str
    hosts: int  # 1: all ranks on this machine; 2: two hosts of a netlab
    inside: bool  # of a `with` block

    @property
    def mine(self) -> bool:
        return dist.get_rank() == self.victim

    def __str__(self) -> str:
        way = f"{self.codec}, hierarchy {self.hierarchy}, {self.hosts} host(s), {self.net}"
        block = ", with block" if self.inside else ""
        return f"rank {self.victim}: {self.kind} in {self.phase} ({self.place}), {way}{block}"


def train_auto(fault: AutoFault) -> Ended:
    """Trains; the victim does its deed in its phase. The process ends as soon as it has answered."""
    step = [-1]
    try:
        bits, skipped = _trained(fault, step)
    except Exception as error:
        return Ended(Failure.of(error), time.monotonic(), step[0], True, "")
    return Ended(None, time.monotonic(), STEPS, True, bits, skipped)


def _trained(fault: AutoFault, step: list[int]) -> tuple[str, bool]:
    model = DistributedDataParallel(NETS[fault.net](), bucket_cap_mb=0.01)
    if fault.mine and fault.phase == "connect":
        _do(fault)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10) if fault.kind == "nan" else None
    compressor = tw.compress(
        model,
        fault.codec,
        quality="aggressive" if fault.codec == "auto" else None,
        hierarchy=fault.hierarchy,
        grad_scaler=scaler,
        check_every=7,
    )
    with (
        compressor if fault.inside else contextlib.nullcontext(),
        _clocked(fault, model, compressor) as autotuner,
    ):
        skipped = _steps(fault, model, compressor, autotuner, scaler, step)
        compressor.wait()
    if not fault.inside:
        compressor.close()
    return digest(dict(model.named_parameters())), skipped


@contextlib.contextmanager
def _clocked(
    fault: AutoFault, model: DistributedDataParallel, compressor: tw.Compressor
) -> Iterator[Autotuner | None]:
    if fault.codec != "auto":
        yield None
        return
    with few_steps(), own_clock(Wrapped(model, compressor), TABLE) as autotuner:
        if fault.mine and fault.phase in CALLS:
            _in_call(fault, autotuner.actions)
        yield autotuner


def _in_call(fault: AutoFault, actions: Any) -> None:
    """The deed is done before the call of the actions in which the phase lies, or behind it."""
    name = CALLS[fault.phase]
    act, left = getattr(actions, name), [random.Random(fault.seed).randrange(3) if name == "steer" else 0]

    def then(*arguments: Any) -> Any:
        due, left[0] = left[0] == 0, left[0] - 1
        if due and fault.place == "before":
            _do(fault)
        answer = act(*arguments)
        if due:
            _do(fault)
        return answer

    setattr(actions, name, then)


def _steps(
    fault: AutoFault,
    model: DistributedDataParallel,
    compressor: tw.Compressor,
    autotuner: Autotuner | None,
    scaler: torch.amp.GradScaler | None,
    step: list[int],
) -> bool:
    """Whether the step with a NaN was skipped on this rank."""
    struck, skipped = False, False
    for step[0] in range(STEPS):
        due = not struck and _in_phase(fault, autotuner, step[0])
        struck = struck or due
        before = digest(dict(model.named_parameters())) if due else ""
        if due and fault.mine:
            _arrange(fault, model, compressor)
        one_step(model, step[0], scaler)
        if due:
            skipped = before == digest(dict(model.named_parameters()))
    return skipped


def _in_phase(fault: AutoFault, autotuner: Autotuner | None, step: int) -> bool:
    """Whether the deed is due in this step: the same on all ranks."""
    if fault.phase in CALLS or fault.phase == "connect":
        return False
    if autotuner is None:
        return step == {"first": 0, "rebuilt": 1}.get(fault.phase, 4)
    trial = autotuner.codec != "dense" and not autotuner.decided
    due = {"first": step == 0, "warm-up": step == 1, "dense": step == 3, "trial": trial}
    return due.get(fault.phase, autotuner.decided)


def one_step(model: DistributedDataParallel, step: int, scaler: torch.amp.GradScaler | None) -> None:
    loss = loss_of(model(batch(step, 20)))
    if scaler is None:
        loss.backward()
        descend(model)
        return
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    model.zero_grad()


def _arrange(fault: AutoFault, model: DistributedDataParallel, compressor: tw.Compressor) -> None:
    if fault.kind == "nan":
        parameter = random.Random(fault.seed).choice(list(model.module.parameters()))
        handles: list[Any] = []
        handles.append(parameter.register_hook(lambda gradient: spoilt(gradient, handles[0])))
    elif fault.place == "between":
        _do(fault)
    elif fault.place == "forward":
        model.module.register_forward_hook(lambda *_: _do(fault))
    elif fault.place == "backward":
        in_backward_of(model.module, lambda *_: _do(fault))
    else:
        node: Any = compressor.node
        exchange = node.exchange

        def then(*arguments: Any) -> None:
            exchange(*arguments)
            _do(fault)

        node.exchange = then
        in_backward_of(model.module, lambda *_: _do(fault))  # where gradients go DDP's own way


def spoilt(gradient: Tensor, handle: Any) -> Tensor:
    handle.remove()
    changed = gradient.clone()
    changed.view(-1)[0] = float("nan")
    return changed


def _do(fault: AutoFault) -> None:
    if fault.kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault.kind == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if fault.kind == "exit":
        os._exit(3)
    if fault.kind == "leave":
        sys.exit(3)  # as scripts end: the interpreter is taken down around what is in flight
    raise ZeroDivisionError("the user's own mistake")
