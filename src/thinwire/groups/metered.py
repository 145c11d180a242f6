"""A group that counts: bytes sent by this rank and calls, by act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from thinwire.groups.base import Group, Pending
from thinwire.groups.wrapper import WrappedGroup


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

    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        self.count(name, nbytes)
        return start()
