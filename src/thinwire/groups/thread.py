"""N ranks as threads of one process: for tests, and for simulating many workers without a network."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from torch import Tensor

from thinwire.errors import PeerError
from thinwire.groups.base import Done, FailureReport, Group, Pending

T = TypeVar("T")


class _Table:
    """The table the threads meet at: a slot per rank and a barrier."""

    def __init__(self, size: int, timeout_s: float) -> None:
        self.slots: list[Tensor | None] = [None] * size
        self.failures: dict[int, FailureReport] = {}
        self.barrier = threading.Barrier(size, timeout=timeout_s)
        self._timeout_s = timeout_s
        self._parts: dict[tuple[int, ...], _Table] = {}
        self._lock = threading.RLock()

    def part(self, ranks: Sequence[int]) -> _Table:
        """The table of some of the ranks; broken if this one is."""
        with self._lock:
            table = self._parts.setdefault(tuple(ranks), _Table(len(ranks), self._timeout_s))
            if self.barrier.broken:
                table.abort()
            return table

    def abort(self) -> None:
        with self._lock:
            self.barrier.abort()
            for table in self._parts.values():
                table.abort()


class ThreadGroup(Group):
    """One rank of `ThreadGroup.make(n)`; sums go in rank order, so they are the same on every rank."""

    def __init__(self, rank: int, size: int, table: _Table, whole: ThreadGroup | None = None) -> None:
        self.rank, self.size, self._table, self._whole = rank, size, table, whole
        self._names: Sequence[int] = range(size)  # of its ranks, in the whole

    @classmethod
    def make(cls, size: int, timeout_s: float = 60.0) -> list[ThreadGroup]:
        table = _Table(size, timeout_s)
        return [cls(rank, size, table) for rank in range(size)]

    def all_reduce(self, tensor: Tensor) -> Pending:
        def total(parts: list[Tensor]) -> Tensor:
            result = parts[0].clone()
            for part in parts[1:]:
                result += part
            return result

        tensor.copy_(self._meet(tensor, total))
        return Done()

    def all_reduce_max(self, words: Tensor) -> Pending:
        def largest(parts: list[Tensor]) -> Tensor:
            result = parts[0].clone()
            for part in parts[1:]:
                result = result.maximum(part)
            return result

        words.copy_(self._meet(words, largest))
        return Done()

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        def mine(parts: list[Tensor]) -> None:
            for rank, part in enumerate(parts):
                receive[rank].copy_(part[self.rank])

        self._meet(send, mine)
        return Done()

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        def all_of(parts: list[Tensor]) -> None:
            for rank, part in enumerate(parts):
                receive[rank].copy_(part)

        self._meet(send, all_of)
        return Done()

    def broadcast(self, tensor: Tensor) -> Pending:
        tensor.copy_(self._meet(tensor, lambda parts: parts[0].clone()))
        return Done()

    def part(self, ranks: Sequence[int], inside: bool = False) -> ThreadGroup:
        part = ThreadGroup(ranks.index(self.rank), len(ranks), self._table.part(ranks), self)
        part._names = ranks
        return part

    def global_rank(self, rank: int) -> int:
        return self._names[rank]

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        if self._whole is not None:
            return self._whole.report_failure(failure)
        self._table.failures[self.rank] = failure
        self.abort()
        return dict(self._table.failures)

    def abort(self) -> None:
        if self._whole is not None:
            self._whole.abort()
        self._table.abort()

    def close(self) -> None:
        pass

    def _meet(self, tensor: Tensor, read: Callable[[list[Tensor]], T]) -> T:
        """Puts a tensor on the table, waits for all, reads, waits until all have read."""
        self._table.slots[self.rank] = tensor
        try:
            self._table.barrier.wait()
        except threading.BrokenBarrierError:
            raise PeerError("a rank of the thread group left the exchange") from None
        result = read([slot for slot in self._table.slots if slot is not None])
        with contextlib.suppress(
            threading.BrokenBarrierError
        ):  # a rank that fails behind this harms nothing here
            self._table.barrier.wait()
        return result


def run_ranks(size: int, work: Callable[[ThreadGroup], T], timeout_s: float = 60.0) -> list[T]:
    """Runs `work(group)` on `size` threads and gives their results in rank order; the first error is raised.

    >>> run_ranks(3, lambda group: group.rank * 10)
    [0, 10, 20]
    """
    results: dict[int, T] = {}
    errors: dict[int, BaseException] = {}

    def body(group: ThreadGroup) -> None:
        try:
            results[group.rank] = work(group)
        except BaseException as error:  # handed to the caller below
            errors[group.rank] = error
            group.abort()

    threads = [threading.Thread(target=body, args=(g,)) for g in ThreadGroup.make(size, timeout_s)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    first_own = [error for error in errors.values() if not isinstance(error, PeerError)]
    for error in first_own + list(errors.values()):
        raise error
    return [results[rank] for rank in range(size)]
