"""The floor: a step without any exchange, its passes, and when DDP's buckets are ready in it."""

from __future__ import annotations

import statistics
import time
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.nn.parallel import DistributedDataParallel

from thinwire.perf.compute import Compute
from thinwire.perf.measured import bucket_layers
from thinwire.perf.network import Layer
from thinwire.plans.model import Model, parameter_names
from thinwire_lab.models.card import ModelCard

WARM_UP_STEPS = 3  # DDP makes its buckets anew after the first


@dataclass
class Watch:
    """What the hook sees of one backward pass: the buckets by the names of their tensors, and the times."""

    names: dict[int, str]
    buckets: list[list[str]] = field(default_factory=list)
    seen_s: list[float] = field(default_factory=list)

    def clear(self) -> None:
        self.buckets.clear()
        self.seen_s.clear()


def watch(state, bucket):  # type: ignore[no-untyped-def]  # DDP compares annotations with the real classes
    """A hook that sends nothing: a bucket is done when it is ready."""
    state.seen_s.append(time.perf_counter())
    state.buckets.append([state.names[id(p)] for p in bucket.parameters()])
    future: torch.futures.Future[Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


watch.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}


@dataclass(frozen=True)
class Floor:
    """Compute while all workers run, and DDP's buckets in the order in which they are ready."""

    compute: Compute
    buckets: tuple[tuple[Layer, ...], ...]


class FloorTraining:
    """A model under DDP whose buckets go nowhere."""

    def __init__(self, card: ModelCard, batch: int) -> None:
        net = card.build(seed=0)
        self.model = DistributedDataParallel(net)
        self.watch = Watch(parameter_names(net))
        self.model.register_comm_hook(self.watch, watch)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.batch, self.seen = batch, list[list[float]]()
        self.x, self.y = card.example(batch, seed=dist.get_rank())

    def step(self) -> list[float]:
        """Seconds of the whole step, of its backward pass, and from that pass's start to each bucket."""
        self.watch.clear()
        start = time.perf_counter()
        self.optimizer.zero_grad()
        loss = nn.functional.cross_entropy(self.model(self.x).flatten(0, -2), self.y.flatten())
        begin = time.perf_counter()
        torch.autograd.backward(loss)
        end = time.perf_counter()
        self.optimizer.step()
        ready = [seen - begin for seen in self.watch.seen_s]
        return [time.perf_counter() - start, end - begin, *ready]

    def warm_up(self) -> None:
        for _ in range(WARM_UP_STEPS):
            self.step()

    def turn(self) -> None:
        """Some steps that all workers begin together; the first is not counted, caches belong to others then.

        Of each number the slowest worker counts.
        """
        for turn in range(3):
            dist.barrier()
            own = torch.tensor(self.step(), dtype=torch.float64)
            if turn:
                dist.all_reduce(own, op=dist.ReduceOp.MAX)
                self.seen.append(own.tolist())

    def floor(self) -> Floor:
        """Medians over all turns."""
        whole, backward, *ready = (statistics.median(column) for column in zip(*self.seen, strict=True))
        compute = Compute(self.batch, whole - backward, backward, tuple(ready), "measured, no exchange")
        model = Model.of(self.model.module)
        return Floor(compute, bucket_layers(model, self.watch.buckets))
