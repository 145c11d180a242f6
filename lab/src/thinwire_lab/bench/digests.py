"""Digests of what exchanges give: run before and after a change, they prove that it changed no bit.

Ranks are threads of one process and gradients are made from integers, so that two runs on one machine differ
only if thinwire does. Between machines some digests differ: those of codecs whose floats go through BLAS.
"""

from __future__ import annotations

import hashlib
import io
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from thinwire.codecs.catalog import CATALOG
from thinwire.codecs.codec import parse
from thinwire.errors import CodecError, LabError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.state import gathered_state, load_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import Observation
from thinwire.tensors import Layout, Spec
from thinwire_lab.run.recipe import read_codec_choice

WORLDS = (1, 2, 4)
STEPS = 30
CPU = torch.device("cpu")
SPECS = (Spec("conv", (16, 8, 3, 3)), Spec("bias", (37,)), Spec("fc", (37, 53)), Spec("wide", (64, 96)))
LAYOUT = Layout.packed(SPECS)
# Names that show their phases within the steps only with these options.
SHORT = {
    "dgc": "dgc:0.05,warmup=10",
    "gradiveq": "gradiveq:4,slice=16,sample=4,compress=9,layers=all",
    "powersgd": "powersgd:2",
    "topk": "topk:0.05",
}
CHAINS = (
    "clip:2 >> qsgd:3,norm=l2,scales=own",
    "dct:64 >> topk:0.15 >> rangefloat:10",
    "fourier:64 >> dense",
    "gradiveq:4,slice=16,sample=4,compress=9,layers=all,energy=0.9 >> qsgd:8",
    "terngrad:scales=own,block=320,wire=2bit",
    "topk:0.05 >> fp16",
)
FEEDBACKS = ("none", "residual", "momentum:0.8,mask=off", "momentum:nesterov=on,clip=1.0", "ef21")
SCHEDULES = ("steps:0=1/7=0.5/20=0.1", "epochs:0=1/1=0.5", "diminish", "diminish:theorem", "guard:window=2")


@dataclass(frozen=True)
class Digest:
    """What 30 exchanges of one codec on N ranks gave, and whether a run that was resumed gave the same."""

    codec: str
    world: int
    digest: str
    resumed: bool


def cases() -> tuple[str, ...]:
    """Every codec of the catalog, some chains, and all feedbacks and schedules with codecs that take them."""
    return (
        *(text for name in CATALOG for text in _whole(SHORT.get(name, name))),
        *CHAINS,
        *(f"{codec} @ feedback={feedback}" for feedback in FEEDBACKS for codec in ("topk:0.05", "terngrad")),
        *(f"{codec} @ schedule={schedule}" for schedule in SCHEDULES for codec in (SHORT["dgc"], "fft:0.9")),
        "qsgd:2 @ schedule=guard:window=2",
    )


def digests(texts: tuple[str, ...], kernels: str | None = None, steps: int = STEPS) -> Iterator[Digest]:
    """One digest for every text, a codec with options behind "@", and every number of ranks."""
    torch.set_num_threads(1)  # tensors this small gain nothing by more
    for text in texts:
        for world in WORLDS:
            yield _digest_of(text, world, kernels, steps)


def _digest_of(text: str, world: int, kernels: str | None, steps: int) -> Digest:
    choice = read_codec_choice(text)
    if choice.hierarchy is not None:
        raise LabError(f'"{text}": digests are of an exchange without nodes, leave out hierarchy=')
    plan = Plan.of(Policy.of(choice.codec, keep_dense=()), Model(SPECS), world, **choice.options())

    def work(group: ThreadGroup) -> tuple[str, bool]:
        engine, seen = _engine(plan, group, kernels), hashlib.blake2b(digest_size=8)
        state: dict[str, Any] = {}
        later = []
        for step in range(steps):
            if step == steps // 2:
                state = _saved(gathered_state(engine))
            means = _step(engine, step)
            seen.update(means)
            later += [means] if step >= steps // 2 else []
        again = _engine(plan, group, kernels)
        load_state(again, state)
        resumed = [_step(again, step) for step in range(steps // 2, steps)]
        return seen.hexdigest(), resumed == later

    results = run_ranks(world, work)
    if len({digest for digest, _ in results}) > 1:
        raise LabError(f'"{text}": {world} ranks ended with different means; please report this as a bug')
    return Digest(text, world, results[0][0], all(same for _, same in results))


def _engine(plan: Plan, group: ThreadGroup, kernels: str | None) -> Engine:
    return Engine(plan, group, CPU, seed=1, kernels=pick(CPU, kernels))


def _step(engine: Engine, step: int) -> bytes:
    """One step of one rank, all tensors in one bucket; gives the bytes of the means."""
    buffer = torch.cat([made(spec, step, engine.group.rank) for spec in SPECS])
    engine.exchange(Bucket(buffer, LAYOUT))
    engine.end_step()
    if engine.scheduler.listens:
        loss = 2.0 / (1 + step) if step < 12 else 3.0 + step
        engine.scheduler.observe(Observation.of(loss, lr=0.5 / (1 + step), epoch=step // 10))
    return buffer.numpy().tobytes()


def made(spec: Spec, step: int, rank: int) -> Tensor:
    """A gradient with long tails, made of integers, so that every CPU computes the same bits."""
    seed = 1_000_003 * step + 1009 * rank + sum(spec.shape)
    whole = torch.randint(-1024, 1025, (spec.numel,), generator=torch.Generator().manual_seed(seed))
    return (whole**3).to(torch.float32) / 2**32


def _saved(state: Mapping[str, Any]) -> dict[str, Any]:
    """The state after being saved to a file and loaded."""
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded: dict[str, Any] = torch.load(file, weights_only=True)
    return loaded


def _whole(text: str) -> tuple[str, ...]:
    """The codec of that text, or, for a stage that cannot be the last link, one that begins with it."""
    try:
        parse(text)
    except CodecError:
        return (f"{text} >> ternary",)
    return (text,)
