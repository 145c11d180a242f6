"""What the ranks of a group do together in a probe: gather, agree, keep cores busy, echo."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire.groups.base import Done, FailureReport, Group, Pending

CPU = torch.device("cpu")


def refuse_one(group: Group) -> None:
    """A group of one has no link."""
    if group.size < 2:
        raise LabError(
            f"a probe of a group of {group.size} measures nothing: there is no link; start at least "
            "2 workers, as in torchrun --nproc-per-node 2"
        )


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(group: Group, device: torch.device = CPU) -> None:
    _gathered(group, torch.zeros(8, dtype=torch.uint8, device=device))  # straight to every peer: one hop
    synchronize(device)


def medians(group: Group, values: Sequence[float], device: torch.device = CPU) -> list[float]:
    """Each number's median over the ranks: the same bits on all of them."""
    mine = torch.tensor(values, dtype=torch.float64).view(torch.uint8).to(device)
    return [statistics.median(column) for column in zip(*_gathered(group, mine), strict=True)]


def largest(group: Group, values: Sequence[float], device: torch.device = CPU) -> list[float]:
    """Each number's largest over the ranks: the same bits on all of them."""
    mine = torch.tensor(values, dtype=torch.float64).view(torch.uint8).to(device)
    return [max(column) for column in zip(*_gathered(group, mine), strict=True)]


def _gathered(group: Group, mine: Tensor) -> list[list[float]]:
    everyone = mine.new_empty(group.size, mine.numel())
    group.all_gather(mine, everyone).wait()
    return [row.cpu().contiguous().view(torch.float64).tolist() for row in everyone]


def gathered_bytes(group: Group, data: bytes, device: torch.device = CPU) -> list[bytes]:
    """What every rank has, which may differ in length, on all ranks."""
    sizes = _gathered(group, torch.tensor([len(data)], dtype=torch.float64).view(torch.uint8).to(device))
    longest = max(1, int(max(size for (size,) in sizes)))
    mine = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8).to(device)
    everyone = mine.new_empty(group.size, longest)
    group.all_gather(mine, everyone).wait()
    rows = zip(everyone.cpu(), sizes, strict=True)
    return [row[: int(size)].numpy().tobytes() for row, (size,) in rows]


def first_bytes(group: Group, data: bytes, device: torch.device = CPU) -> bytes:
    """What the first rank has, on all ranks."""
    return gathered_bytes(group, data, device)[0]


WIDTH, BATCH = 1024, 16


class Chore:
    """Products with a weight matrix and an update of it: some arithmetic, and memory that no cache holds."""

    def __init__(self) -> None:
        self.weight = torch.full((WIDTH, WIDTH), 1e-3)
        self.sums = torch.zeros(WIDTH, WIDTH)
        self.x = torch.ones(BATCH, WIDTH)

    def round(self) -> None:
        torch.mm(torch.mm(self.x, self.weight), self.weight.t())
        self.sums.add_(self.weight, alpha=1e-3)

    def rate(self, seconds: float) -> float:
        """Rounds a second."""
        start = time.perf_counter()
        rounds = self._until(lambda: time.perf_counter() - start >= seconds)
        return rounds / (time.perf_counter() - start)

    def beside(self, work: Callable[[], object]) -> tuple[float, float, int]:
        """Runs `work` on a thread of its own: its seconds, all seconds, and the rounds that this one did."""
        over = threading.Event()
        errors: list[BaseException] = []
        taken: list[float] = []

        def run() -> None:
            start = time.perf_counter()
            try:
                work()
            except BaseException as error:  # raised below, on the thread that asked
                errors.append(error)
            taken.append(time.perf_counter() - start)
            over.set()

        start = time.perf_counter()
        thread = threading.Thread(target=run, name="thinwire probe")
        thread.start()
        rounds = self._until(over.is_set)
        thread.join()
        for error in errors:
            raise error
        return taken[0], time.perf_counter() - start, rounds

    def _until(self, over: Callable[[], bool]) -> int:
        rounds = 0
        while not over():
            self.round()
            rounds += 1
        return rounds


class EchoGroup(Group):
    """Collectives without a network, so that what is left of an exchange's time is the codec's own.

    Every peer is thought to have sent what this rank sends. `seconds` is what the copying took, which a
    real group does on the way: it is no part of the codec.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.seconds = rank, size, 0.0

    def all_reduce(self, tensor: Tensor) -> Pending:
        return Done()

    def all_reduce_max(self, words: Tensor) -> Pending:
        return Done()

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        with self._aside():
            receive.view(self.size, -1).copy_(send.view(self.size, -1)[self.rank].expand(self.size, -1))
        return Done()

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        with self._aside():
            receive.view(self.size, -1).copy_(send.view(-1).expand(self.size, -1))
        return Done()

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        return {self.rank: failure}

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    @contextmanager
    def _aside(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
