"""What ranks do while a fault is injected: each function trains, and gives what this rank met."""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from failing import in_backward_of
from rank import Failure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training import batch, descend, loss_of, mlp, normed

import thinwire as tw
from thinwire.exchange.engine import Bucket, Engine

STEPS = 14
PAUSE_S = 0.02  # in every step: a signal at a random time then meets every part of a run
SMALL_BUCKETS_MB = 0.01
CODECS = ("terngrad", "qsgd:4", "topk:0.1", "sign", "powersgd:2", "dense", "fp16", "fft:0.85")
NETS: dict[str, Callable[[], nn.Module]] = {"mlp": mlp, "normed": normed}


@dataclass(frozen=True)
class Fault:
    """One injection; everything about it follows from its kind and seed."""

    kind: str
    seed: int
    world: int
    victim: int
    codec: str
    net: str
    step: int
    place: str = ""
    deed: str = ""
    ddp: dict[str, Any] = field(default_factory=dict)
    begun: str = ""  # a file that the victim makes after its first step

    @property
    def mine(self) -> bool:
        return dist.get_rank() == self.victim


@dataclass(frozen=True)
class Ended:
    """How training ended on a rank: its error if there was one, when, and whether nothing was lost."""

    failure: Failure | None
    at: float  # of time.monotonic, which is the same clock in all processes of a machine
    step: int
    kept: bool  # the memories are those of the last whole step
    bits: str  # of the parameters
    skipped: bool = False  # the step with the fault, on this rank


def digest(tensors: dict[str, Tensor]) -> str:
    found = hashlib.blake2b(digest_size=16)
    for name, tensor in sorted(tensors.items()):
        found.update(name.encode())
        found.update(tensor.detach().reshape(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def memories_of(compressor: tw.Compressor) -> str:
    engine = compressor.engine
    kept = {
        f"{kind} {what} {name}": t
        for kind, feedback in engine.feedbacks.items()
        for what, tensors in feedback.state().items()
        for name, t in tensors.items()
    }
    return digest(kept)


# The model that `prepare` made, for `train`: a death within DDP's constructor says nothing about thinwire.
_prepared: list[DistributedDataParallel] = []


def prepare(fault: Fault) -> None:
    _prepared[:] = [DistributedDataParallel(NETS[fault.net](), bucket_cap_mb=SMALL_BUCKETS_MB, **fault.ddp)]


def train(fault: Fault, inject: bool) -> Ended:
    """Trains the prepared model; the victim does its deed if it is to be done from inside."""
    model, scaler = _prepared.pop(), torch.amp.GradScaler("cpu", init_scale=2.0**10)
    options: dict[str, Any] = {"grad_scaler": scaler} if fault.kind in ("nan", "inf") else {}
    skipped, step, kept = False, -1, ""
    compressor = None
    try:
        compressor = tw.compress(model, fault.codec, **options)
        for step in range(STEPS):
            due = inject and fault.mine and step == fault.step
            with arranged(fault, model, compressor) if due else contextlib.nullcontext():
                before, kept = digest(dict(model.named_parameters())), memories_of(compressor)
                one_step(model, step, scaler if options else None)
                compressor.wait()
            if fault.begun and fault.mine:
                Path(fault.begun).touch()
            if inject and options and step == fault.step:
                skipped = before == digest(dict(model.named_parameters()))
                if kept != memories_of(compressor):
                    return Ended(None, time.monotonic(), step, False, "", skipped)
        kept = memories_of(compressor)
    except Exception as error:
        at = time.monotonic()
        intact = compressor is None or step < 0 or kept == memories_of(compressor)
        return Ended(Failure.of(error), at, step, intact, "")
    ended = Ended(None, time.monotonic(), STEPS, True, digest(dict(model.named_parameters())) + kept, skipped)
    compressor.close()
    return ended


def one_step(model: DistributedDataParallel, step: int, scaler: torch.amp.GradScaler | None) -> None:
    time.sleep(PAUSE_S)
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


@contextlib.contextmanager
def arranged(fault: Fault, model: DistributedDataParallel, compressor: tw.Compressor) -> Iterator[None]:
    """What the victim does in its step: a deed at a place, or a number that is none."""
    if fault.kind in ("nan", "inf"):
        chance = random.Random(fault.seed)
        parameter = chance.choice(list(model.module.parameters()))
        position = chance.randrange(parameter.numel())

        def spoil(gradient: Tensor) -> Tensor:
            spoilt = gradient.clone()
            spoilt.view(-1)[position] = float(fault.kind)
            return spoilt

        handle = parameter.register_hook(spoil)
        yield
        handle.remove()
        return
    if fault.place == "between":
        DEEDS[fault.deed]()
    if fault.place == "forward":
        model.module.register_forward_hook(lambda *_: DEEDS[fault.deed]())
    if fault.place == "backward":
        in_backward_of(model.module, lambda *_: DEEDS[fault.deed]())
    if fault.place == "exchange":

        def then(engine: Engine, bucket: Bucket) -> None:
            engine.exchange(bucket)
            DEEDS[fault.deed]()

        compressor.node.exchange = then  # type: ignore[method-assign]
    yield


def _raise() -> None:
    raise ZeroDivisionError("the user's own mistake")


DEEDS: dict[str, Callable[[], None]] = {
    "exit": lambda: os._exit(3),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "raise": _raise,
}


def wider(width: int = 72) -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, width), nn.ReLU(), nn.Linear(width, 65), nn.ReLU(), nn.Linear(65, 10))


def deeper() -> nn.Module:
    return nn.Sequential(*mlp().children(), nn.Linear(10, 10))


ODD_NETS: dict[str, Callable[[], nn.Module]] = {
    "names": lambda: nn.Sequential(mlp()),
    "shapes": wider,
    "layers": deeper,
    "order": lambda: nn.Sequential(*reversed(list(mlp().children()))),
    "frozen": lambda: freeze(mlp()),
    "dtype": lambda: mlp(torch.float64),
    "one dtype": lambda: one_double(mlp()),
}


def freeze(net: nn.Module) -> nn.Module:
    next(net.parameters()).requires_grad_(False)
    return net


def one_double(net: nn.Module) -> nn.Module:
    list(net.children())[2].double()
    return net


def disagree(fault: Fault) -> Ended:
    """The victim was given another codec, model, dtype or bucket size; DDP is made here too."""
    codec, cap = fault.codec, SMALL_BUCKETS_MB
    build: Callable[[], nn.Module] = mlp
    if fault.mine and fault.kind == "codec":
        codec = fault.deed
    if fault.mine and fault.kind == "buckets":
        cap = float(fault.deed)
    if fault.mine and fault.kind in ("model", "dtype"):
        build = ODD_NETS[fault.deed]
    step = -1
    try:
        net = build()
        model = DistributedDataParallel(net, bucket_cap_mb=cap, **fault.ddp)
        step = 0
        with tw.compress(model, codec):
            for step in range(3):
                dtype = next(net.parameters()).dtype
                one_step_as(model, step, dtype)
    except Exception as error:
        return Ended(Failure.of(error), time.monotonic(), step, True, "")
    return Ended(None, time.monotonic(), 3, True, digest(dict(model.named_parameters())))


def one_step_as(model: nn.Module, step: int, dtype: torch.dtype) -> None:
    loss_of(model(batch(step, 20, dtype=dtype))).backward()
    descend(model)
