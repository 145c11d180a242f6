"""Groups around another group: one counts bytes, one emulates a slow link, one records events."""

from __future__ import annotations

import time
from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import MappingProxyType

from torch import Tensor

from thinwire.clock import Event
from thinwire.groups.base import (
    FailureReport,
    Group,
    Pending,
    all_gather_bytes,
    all_reduce_bytes,
    all_reduce_max_bytes,
    all_to_all_bytes,
    broadcast_bytes,
)
from thinwire.texts import parse_rate


class WrappedGroup(Group):
    """Hands every collective on to the group it wraps."""

    def __init__(self, inner: Group) -> None:
        self.inner, self.rank, self.size = inner, inner.rank, inner.size

    def connect(self) -> None:
        self.inner.connect()

    def all_reduce(self, tensor: Tensor) -> Pending:
        return self.inner.all_reduce(tensor)

    def all_reduce_max(self, words: Tensor) -> Pending:
        return self.inner.all_reduce_max(words)

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return self.inner.all_to_all(send, receive)

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        return self.inner.all_gather(send, receive)

    def broadcast(self, tensor: Tensor) -> Pending:
        return self.inner.broadcast(tensor)

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        return self.inner.part(ranks, inside)

    def announce(self, what: str) -> None:
        self.inner.announce(what)

    def await_calls(self) -> None:
        self.inner.await_calls()

    def begin_exchange(self) -> None:
        self.inner.begin_exchange()

    def go_outside(self) -> None:
        self.inner.go_outside()

    def absent(self) -> tuple[str, list[int]] | None:
        return self.inner.absent()

    def global_rank(self, rank: int) -> int:
        return self.inner.global_rank(rank)

    def ended(self) -> Mapping[int, FailureReport | None]:
        return self.inner.ended()

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        return self.inner.report_failure(failure)

    def abort(self) -> None:
        self.inner.abort()

    def close(self) -> None:
        self.inner.close()


class Metered(WrappedGroup):
    """Counts what the acts of a group send.

    >>> import torch
    >>> from thinwire.groups.thread import ThreadGroup
    >>> meter = Metered(ThreadGroup.make(1)[0])
    >>> meter.all_reduce(torch.zeros(8)).wait(); meter.calls["all_reduce"], meter.total_bytes
    (1, 0)
    """

    def __init__(self, inner: Group) -> None:
        super().__init__(inner)
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()
        self.aside_bytes = 0  # of all bytes: those that no step's exchange needed
        self._aside = False

    @property
    def total_bytes(self) -> int:
        return self.bytes.total()

    @property
    def step_bytes(self) -> int:
        """What the exchanges of all steps sent."""
        return self.total_bytes - self.aside_bytes

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What is sent meanwhile is of no step: comparing plans, gathering a state, looking for drift."""
        before, self._aside = self._aside, True
        try:
            yield
        finally:
            self._aside = before

    def turn_to(self, inner: Group) -> None:
        """Counts on, the acts of another group."""
        self.inner, self.rank, self.size = inner, inner.rank, inner.size

    @contextmanager
    def turned_to(self, inner: Group) -> Iterator[None]:
        """Meanwhile its acts are those of another group."""
        before = self.inner
        self.turn_to(inner)
        try:
            yield
        finally:
            self.turn_to(before)

    def count(self, name: str, nbytes: int) -> None:
        """Something was sent."""
        self.bytes[name] += nbytes
        self.calls[name] += 1
        self.aside_bytes += nbytes if self._aside else 0

    def all_reduce(self, tensor: Tensor) -> Pending:
        self.count("all_reduce", all_reduce_bytes(tensor.nbytes, self.size))
        return self.inner.all_reduce(tensor)

    def all_reduce_max(self, words: Tensor) -> Pending:
        self.count("all_reduce_max", all_reduce_max_bytes(words.nbytes, self.size))
        return self.inner.all_reduce_max(words)

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        self.count("all_to_all", all_to_all_bytes(send.nbytes, self.size))
        return self.inner.all_to_all(send, receive)

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        self.count("all_gather", all_gather_bytes(send.nbytes, self.size))
        return self.inner.all_gather(send, receive)

    def broadcast(self, tensor: Tensor) -> Pending:
        self.count("broadcast", broadcast_bytes(tensor.nbytes, self.rank, self.size))
        return self.inner.broadcast(tensor)


class Observed(WrappedGroup):
    """`observe` sees every collective: its name, the bytes this rank sends in it, and how to start it."""

    @abstractmethod
    def observe(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        """Starts one collective."""

    def all_reduce(self, tensor: Tensor) -> Pending:
        nbytes = all_reduce_bytes(tensor.nbytes, self.size)
        return self.observe("all_reduce", nbytes, lambda: self.inner.all_reduce(tensor))

    def all_reduce_max(self, words: Tensor) -> Pending:
        nbytes = all_reduce_max_bytes(words.nbytes, self.size)
        return self.observe("all_reduce_max", nbytes, lambda: self.inner.all_reduce_max(words))

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        nbytes = all_to_all_bytes(send.nbytes, self.size)
        return self.observe("all_to_all", nbytes, lambda: self.inner.all_to_all(send, receive))

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        nbytes = all_gather_bytes(send.nbytes, self.size)
        return self.observe("all_gather", nbytes, lambda: self.inner.all_gather(send, receive))

    def broadcast(self, tensor: Tensor) -> Pending:
        nbytes = broadcast_bytes(tensor.nbytes, self.rank, self.size)
        return self.observe("broadcast", nbytes, lambda: self.inner.broadcast(tensor))


@dataclass(frozen=True)
class Link:
    """The link of every host: its rate in each direction and the latency of one hop."""

    rate: str
    latency_s: float = 0.0002

    @property
    def bits_per_s(self) -> float:
        """The rate as a number."""
        return parse_rate(self.rate)


_HOPS: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "all_reduce": lambda n: 2 * (n - 1),
        "all_reduce_max": lambda n: 1,
        "all_to_all": lambda n: 1,
        "all_gather": lambda n: n - 1,
        "broadcast": lambda n: (n - 1).bit_length(),
    }
)


class Emulated(Observed):
    """Every act takes the link for hops * latency + 8 * bytes / rate; acts under way wait for one another."""

    def __init__(self, inner: Group, link: Link) -> None:
        super().__init__(inner)
        self._link, self._bits_per_s = link, link.bits_per_s
        self._free_at = 0.0

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        """The link is between nodes: inside of one nothing is slowed down."""
        part = self.inner.part(ranks, inside)
        return part if inside else Emulated(part, self._link)

    def observe(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        if self.size == 1:
            return start()
        taken_s = _HOPS[name](self.size) * self._link.latency_s + 8 * nbytes / self._bits_per_s
        self._free_at = max(self._free_at, time.monotonic()) + taken_s
        return _Slow(start(), self._free_at)


class _Slow:
    """An act that is over when the link has carried it, not before."""

    def __init__(self, act: Pending, over_at: float) -> None:
        self._act, self._over_at = act, over_at

    def wait(self) -> None:
        self._act.wait()
        time.sleep(max(0.0, self._over_at - time.monotonic()))


class Traced(Observed):
    """Notes every act from its start until somebody has waited for its end.

    >>> import torch
    >>> from thinwire.groups.thread import ThreadGroup
    >>> traced = Traced(ThreadGroup.make(1)[0])
    >>> traced.all_reduce(torch.zeros(8)).wait(); [event.what for event in traced.events]
    ['all_reduce']
    """

    def __init__(self, inner: Group) -> None:
        super().__init__(inner)
        self.events: list[Event] = []

    def observe(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        return _Noted(name, time.perf_counter(), start(), self.events)


class _Noted:
    def __init__(self, name: str, started: float, act: Pending, events: list[Event]) -> None:
        self._name, self._started, self._act, self._events = name, started, act, events

    def wait(self) -> None:
        self._act.wait()
        self._events.append(Event(self._name, self._started, time.perf_counter()))
