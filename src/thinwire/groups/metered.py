"""A group that counts: bytes sent by this rank and calls, by act."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from thinwire.groups.base import Group, Pending
from thinwire.groups.wrapper import WrappedGroup


class Metered(WrappedGroup):
    """Counts what the acts of a group send.

    >>> import torch
    >>> from thinwire.groups.thread import ThreadGroup
    >>> meter = Metered(ThreadGroup.make(1)[0])
    >>> meter.sum_(torch.zeros(8)).wait(); meter.calls["sum"], meter.total_bytes
    (1, 0)
    """

    def __init__(self, inner: Group) -> None:
        super().__init__(inner)
        self.bytes: Counter[str] = Counter()
        self.calls: Counter[str] = Counter()

    @property
    def total_bytes(self) -> int:
        return self.bytes.total()

    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        self.bytes[name] += nbytes
        self.calls[name] += 1
        return start()
