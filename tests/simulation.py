"""N ranks as threads, each with an engine: the whole line without a network or a process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from thinwire.codecs.codec import CodecLike
from thinwire.exchange.engine import Bucket, Engine
from thinwire.feedback.base import ErrorFeedback
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import Kernels
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout, Spec

CPU = torch.device("cpu")
Gradients = dict[str, Tensor]
Source = Callable[[int, int], Mapping[str, Tensor]]  # (step, rank) to gradients


@dataclass(frozen=True)
class Simulation:
    """A plan on `world` ranks. `buckets` says how the tensors are cut into buckets; None is one bucket."""

    codec: CodecLike | Mapping[str, CodecLike]
    specs: tuple[Spec, ...]
    world: int
    feedback: str | None = None
    route: str | None = None
    kernels: Kernels | None = None
    seed: int = 0
    buckets: tuple[tuple[str, ...], ...] | None = None
    keep_dense: tuple[str, ...] = ()
    device: torch.device = CPU
    schedule: str | None = None

    @cached_property
    def plan(self) -> Plan:
        policy = Policy.of(self.codec, self.keep_dense)
        return Plan.of(policy, Model(self.specs), self.world, self.feedback, self.route, self.schedule)

    def engine(self, group: ThreadGroup) -> Engine:
        return Engine(self.plan, group, self.device, self.seed, self.kernels)

    @cached_property
    def layouts(self) -> list[Layout]:
        by_name = {spec.name: spec for spec in self.specs}
        names = self.buckets or (tuple(by_name),)
        return [Layout.packed(by_name[name] for name in bucket) for bucket in names]

    def step(self, engine: Engine, gradients: Mapping[str, Tensor], loss_scale: float = 1.0) -> Gradients:
        """One step of one rank: its gradients in, the means out."""
        means: Gradients = {}
        for layout in self.layouts:
            flat = [gradients[name].flatten() for name in layout.names]
            buffer = torch.cat(flat).to(self.device)
            engine.exchange(Bucket(buffer, layout, loss_scale))
            for spec, piece in zip(layout.specs, layout.slices, strict=True):
                means[spec.name] = buffer[piece].view(spec.shape).cpu()
        engine.end_step()
        return means

    def run(self, source: Source, steps: int = 1) -> list[list[Gradients]]:
        """The means by rank and step."""

        def work(group: ThreadGroup) -> list[Gradients]:
            engine = self.engine(group)
            return [self.step(engine, source(step, group.rank)) for step in range(steps)]

        return run_ranks(self.world, work)

    def but(self, **changes: object) -> Simulation:
        return replace(self, **changes)  # type: ignore[arg-type]


def specs_of(
    sizes: Mapping[str, int | Sequence[int]], dtype: torch.dtype = torch.float32
) -> tuple[Spec, ...]:
    return tuple(
        Spec(name, (shape,) if isinstance(shape, int) else tuple(shape), dtype)
        for name, shape in sizes.items()
    )


def gaussian(specs: Sequence[Spec], seed: int = 0) -> Source:
    """Independent normal gradients for every step and rank."""

    def source(step: int, rank: int) -> Gradients:
        generator = torch.Generator().manual_seed(1_000_003 * seed + 1009 * step + rank)
        return {s.name: torch.randn(s.shape, generator=generator).to(s.dtype) for s in specs}

    return source


def flat(held: Mapping[str, Mapping[str, Tensor]]) -> Gradients:
    """What is held, under the name of the piece of state and of the tensor."""
    return {f"{what} {name}": t for what, tensors in held.items() for name, t in tensors.items()}


def held(feedback: ErrorFeedback) -> Gradients:
    return flat(feedback.state())


def sum_of(tensors: Iterable[Tensor]) -> Tensor:
    """Added up one after the other, as `sum` does it."""
    return sum(tensors, start=torch.zeros(()))


def same_bits(a: Tensor, b: Tensor) -> bool:
    """Equal bit by bit: NaN equals NaN, 0.0 differs from -0.0."""
    raw = [t.detach().cpu().contiguous().view(-1).view(torch.uint8) for t in (a, b)]
    return a.dtype == b.dtype and a.shape == b.shape and torch.equal(*raw)


def assert_same(a: Mapping[str, Tensor], b: Mapping[str, Tensor]) -> None:
    assert a.keys() == b.keys()
    for name in a:
        assert same_bits(a[name], b[name]), f"{name} differs"


def assert_ranks_agree(means: list[list[Gradients]]) -> None:
    for rank in means[1:]:
        for mine, first in zip(rank, means[0], strict=True):
            assert_same(mine, first)
