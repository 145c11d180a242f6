"""A group that remembers when its acts were under way, for a picture of an exchange."""

from __future__ import annotations

import time
from collections.abc import Callable

from thinwire.clock import Event
from thinwire.groups.base import Group, Pending
from thinwire.groups.wrapper import WrappedGroup


class Traced(WrappedGroup):
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

    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        return _Noted(name, time.perf_counter(), start(), self.events)


class _Noted:
    def __init__(self, name: str, started: float, act: Pending, events: list[Event]) -> None:
        self._name, self._started, self._act, self._events = name, started, act, events

    def wait(self) -> None:
        self._act.wait()
        self._events.append(Event(self._name, self._started, time.perf_counter()))
