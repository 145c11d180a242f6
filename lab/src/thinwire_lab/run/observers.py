"""What is observed of a run: bytes sent, gradients, step times, scores, and whether ranks agree."""

from __future__ import annotations

import hashlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch import Tensor, nn

import thinwire as tw
from thinwire.errors import LabError
from thinwire_lab.data import Task
from thinwire_lab.net.iproute import read_counters
from thinwire_lab.run.recipe import DDP_FP16, Recipe

NUM_LAYERS = 4  # the largest
NUM_BINS = 41  # odd: the middle one holds zero
LIMIT = 4.0  # times the root mean square of a rank's own gradient; what lies outside counts in the last bin
WARM_UP_STEPS = 3  # not in the mean: buckets are rebuilt, buffers are allocated
BATCH = 200


def ring_bytes(gradient_bytes: int, workers: int) -> float:
    """What each of N workers sends in a ring all-reduce: 2 (N - 1) / N times the size of the gradients."""
    return 2 * (workers - 1) / workers * gradient_bytes


class ByteMeter(ABC):
    """Counts while training runs; `pause` and `resume` leave out evaluation and checkpoints."""

    source: str

    @abstractmethod
    def resume(self) -> None:
        """Count from here on."""

    @abstractmethod
    def pause(self) -> None:
        """Stop counting."""

    @abstractmethod
    def sent_bytes(self, steps: int) -> float:
        """Bytes sent in the `steps` steps run so far."""


class InterfaceMeter(ByteMeter):
    """Reads the counters of this host's interface: what the kernel saw, without the headers of TCP/IP."""

    source = "interface counters, TCP/IP headers taken off"

    def __init__(self) -> None:
        self._total = 0
        self._start = 0

    def resume(self) -> None:
        self._start = self._payload()

    def pause(self) -> None:
        self._total += self._payload() - self._start

    def sent_bytes(self, steps: int) -> float:
        return float(self._total)

    def _payload(self) -> int:
        return read_counters().tx_payload_bytes


class CompressorMeter(ByteMeter):
    """Asks the compressor, whose group counts every call."""

    source = "thinwire's meter"

    def __init__(self, compressor: tw.Compressor) -> None:
        self._compressor = compressor

    def resume(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def pause(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def sent_bytes(self, steps: int) -> float:
        per_step: float = self._compressor.report().to_dict()["bytes_per_step"]
        return per_step * steps


class TotalMeter(ByteMeter):
    """Asks for all bytes so far, where they do not follow the steps one by one (local steps, FSDP2)."""

    source = "thinwire's meter"

    def __init__(self, total: Callable[[], int]) -> None:
        self._total = total

    def resume(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def pause(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def sent_bytes(self, steps: int) -> float:
        return float(self._total())


class ComputedMeter(ByteMeter):
    """Computes what a ring all-reduce of all gradients sends, where nothing can be measured."""

    source = "computed: ring all-reduce"

    def __init__(self, gradient_bytes: int, workers: int) -> None:
        self._per_step = ring_bytes(gradient_bytes, workers)

    def resume(self) -> None:
        """Nothing to do: nothing is measured."""

    def pause(self) -> None:
        """Nothing to do: nothing is measured."""

    def sent_bytes(self, steps: int) -> float:
        return self._per_step * steps


def meter_for(
    recipe: Recipe,
    num_parameters: int,
    compressor: tw.Compressor | None,
    counters: bool,
    local: tw.DiLoCo | None = None,
) -> ByteMeter:
    """The best there is: interface counters, then the compressor, then arithmetic."""
    if counters:
        return InterfaceMeter()
    if local is not None:
        return TotalMeter(lambda: local.exchange.engine.group.step_bytes)
    if compressor is not None:
        return CompressorMeter(compressor)
    element_bytes = 2 if recipe.codec == DDP_FP16 else 4
    return ComputedMeter(element_bytes * num_parameters, recipe.workers)


class GradientHistograms:
    """Looks at the largest weights in the steps it was given, which count from 1; `now` tells the step."""

    def __init__(self, net: nn.Module, steps: Collection[int], now: Callable[[], int]) -> None:
        self.steps, self.now = frozenset(steps), now
        weights = [(name, p) for name, p in net.named_parameters() if p.requires_grad]
        largest = sorted(weights, key=lambda pair: -pair[1].numel())[:NUM_LAYERS]
        self._weights = {name: p for name, p in weights if any(p is big for _, big in largest)}
        self._own: dict[str, Tensor] = {}
        for name, parameter in self._weights.items() if self.steps else ():
            parameter.register_post_accumulate_grad_hook(partial(self._note, name))  # type: ignore[no-untyped-call]

    def _note(self, name: str, parameter: Tensor) -> None:
        if self.now() in self.steps and parameter.grad is not None:
            self._own[name] = parameter.grad.detach().clone()

    def take(self) -> list[dict[str, Any]]:
        """After the step: one entry per layer; layers with NaN or Inf are left out."""
        entries = []
        for name, own in self._own.items():
            mean = self._weights[name].grad
            limit = LIMIT * float(own.square().mean().sqrt())
            if mean is not None and 0.0 < limit < float("inf") and bool(mean.isfinite().all()):
                counts = {"own": histogram(own, limit), "mean": histogram(mean, limit)}
                entries.append({"layer": name, "limit": float(f"{limit:.4g}"), **counts})
        self._own = {}
        return entries


def histogram(x: Tensor, limit: float) -> list[int]:
    """How many numbers fall into each of the equal bins from -limit to limit.

    >>> histogram(torch.tensor([0.0, 0.01, -9.0]), limit=1.0)[0::20]
    [1, 2, 0]
    """
    inside = x.detach().float().clamp(-limit, limit)
    return [int(count) for count in torch.histc(inside, NUM_BINS, -limit, limit).tolist()]


@dataclass
class StepStopwatch:
    """Counts every step; the mean leaves out the warm-up."""

    seconds: float = 0.0
    waited_s: float = 0.0  # for gradients to travel, when there was nothing left to compute
    num_steps: int = 0
    _later: list[float] = field(default_factory=list)

    def add(self, seconds: float, waited_s: float = 0.0) -> None:
        """Adds a step of so many seconds."""
        self.seconds += seconds
        self.waited_s += waited_s
        if self.num_steps >= WARM_UP_STEPS:
            self._later.append(seconds)
        self.num_steps += 1

    @property
    def mean_ms(self) -> float:
        """The mean of the steps after the warm-up, or of all steps if there are no others."""
        if not self._later:
            return 1e3 * self.seconds / max(1, self.num_steps)
        return 1e3 * sum(self._later) / len(self._later)


def agreed_digest(net: nn.Module, peers: Peers) -> str:
    """SHA-256 of all parameters, after comparing it with the other ranks'."""
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digests = peers.everyones(digest.digest())
    for rank, other in enumerate(digests):
        if other != digests[0]:
            raise LabError(
                f"worker {rank} ended with other parameters than worker 0: please report this as a bug"
            )
    return digest.hexdigest()


@dataclass(frozen=True)
class Scores:
    """Mean losses, the share of right answers, and the number by which the task is judged."""

    loss: float
    test_loss: float
    accuracy: float
    score: float


def evaluate(net: nn.Module, task: Task, peers: Peers, losses: list[float]) -> Scores:
    """The scores of `net`; `losses` are this process's training losses since the last evaluation.

    1. take over rank 0's running statistics, as DDP does before every forward pass;  2. sum up losses and
    right answers over this process's share of the test set;  3. add the sums of all processes.
    """
    peers.take_buffers(net)
    mine = [sum(losses), float(len(losses)), *_test_sums(net, task, peers.rank, peers.size)]
    train_loss, train_count, test_loss, right, test_count = peers.sums(mine)
    mean_loss, share_right = test_loss / test_count, right / test_count
    return Scores(train_loss / train_count, mean_loss, share_right, task.score(mean_loss, share_right))


@torch.no_grad()
def _test_sums(net: nn.Module, task: Task, rank: int, workers: int) -> tuple[float, float, float]:
    loss, right, count = 0.0, 0.0, 0.0
    net.eval()
    for start in range(rank * BATCH, len(task.test), workers * BATCH):
        x, y = task.batch(task.test, np.arange(start, min(start + BATCH, len(task.test))))
        logits: Tensor = net(x)
        loss += task.loss(logits, y).item() * y.numel()
        right += float((logits.argmax(-1) == y).sum())
        count += y.numel()
    net.train()
    return loss, right, count


class Peers(ABC):
    """What the processes of a run do together beside exchanging gradients."""

    rank: int
    size: int  # processes

    @abstractmethod
    def meet(self) -> None:
        """Wait for all."""

    @abstractmethod
    def sums(self, numbers: list[float]) -> list[float]:
        """Every number added up over all processes."""

    @abstractmethod
    def take_buffers(self, net: nn.Module) -> None:
        """Take over the first process's running statistics, as DDP does before every forward pass."""

    @abstractmethod
    def everyones(self, words: bytes) -> list[bytes]:
        """The bytes of every process, by rank; all have the same length."""


class Processes(Peers):
    """One worker in each process, joined by torch.distributed."""

    def __init__(self) -> None:
        self.rank, self.size = dist.get_rank(), dist.get_world_size()

    def meet(self) -> None:
        dist.barrier()

    def sums(self, numbers: list[float]) -> list[float]:
        summed = torch.tensor(numbers, dtype=torch.float64)
        dist.all_reduce(summed)
        return [float(number) for number in summed]

    def take_buffers(self, net: nn.Module) -> None:
        for buffer in net.buffers():
            dist.broadcast(buffer, 0)

    def everyones(self, words: bytes) -> list[bytes]:
        mine = torch.tensor(list(words), dtype=torch.uint8)
        told = [torch.empty_like(mine) for _ in range(self.size)]
        dist.all_gather(told, mine)
        return [bytes(each.tolist()) for each in told]


class Nobody(Peers):
    """All workers of the run are in this process."""

    rank, size = 0, 1

    def meet(self) -> None:
        """Nobody to wait for."""

    def sums(self, numbers: list[float]) -> list[float]:
        return numbers

    def take_buffers(self, net: nn.Module) -> None:
        """They are the first worker's."""

    def everyones(self, words: bytes) -> list[bytes]:
        return [words]
