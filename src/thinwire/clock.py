"""Seconds by operation of the line, and the operation that is running (errors name it)."""

from __future__ import annotations

import contextlib
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from thinwire.devices import HOST, is_host

MANY = 1024  # operations of a device that may wait to be added up
OPERATIONS = ("agree", "encode", "travel", "merge", "decode")
COMPARE = "compare plans"  # of an exchange that has no time of its own: it happens once
PREPARE = "prepare"
NODE = "node"  # raw numbers inside a node, in a hierarchy only
WEIGHTS = "weights"  # gathered for a forward or backward pass, under FSDP2 only
TUNE = "measuring for auto"
PLAN = "plan"
CONNECT = "connect"
ROLL_CALL = "roll call"  # all ranks must come to it, whatever it is
TRAINING = "training"
OUTSIDE = "collective of DDP or of the script"  # not of the line: DDP rebuilds buckets, broadcasts buffers


@dataclass(frozen=True)
class Event:
    """Something that took time, in seconds of `time.perf_counter`, for one part of the lanes or for all."""

    what: str
    start: float
    end: float
    part: int | None = None


class DeviceTimes:
    """On a device the host only launches, and a collective's `wait` returns at once: there seconds are those
    between two events of the device's stream, added up when both are over, which nobody waits for.
    """

    def __init__(self, device: torch.device) -> None:
        self._module = torch.get_device_module(device)
        self._running: deque[tuple[str, Any, Any]] = deque()  # what the device has not done yet, in order

    def mark(self) -> Any:
        event = self._module.Event(enable_timing=True)
        event.record()
        return event

    def note(self, name: str, start: Any, seconds: dict[str, float]) -> None:
        """An operation began at a mark and ends here; of many that wait, those that are over are added up."""
        self._running.append((name, start, self.mark()))
        if len(self._running) > MANY:
            self.add_to(seconds)

    def add_to(self, seconds: dict[str, float]) -> None:
        while self._running and self._running[0][2].query():
            name, start, end = self._running.popleft()
            seconds[name] = seconds.get(name, 0.0) + start.elapsed_time(end) / 1e3


class Clock:
    """Adds up wall-clock time by operation. While `events` is a list, every operation is noted in it.

    >>> clock = Clock()
    >>> with clock.time("encode"): pass
    >>> clock.seconds["encode"] >= 0
    True
    """

    def __init__(self, device: torch.device = HOST) -> None:
        self._seconds = dict.fromkeys(OPERATIONS, 0.0)
        self._device = None if is_host(device) else DeviceTimes(device)
        self.current = PREPARE
        self.events: list[Event] | None = None

    @property
    def seconds(self) -> dict[str, float]:
        """By operation, as far as it is over."""
        if self._device is not None:
            self._device.add_to(self._seconds)
        return self._seconds

    @contextlib.contextmanager
    def time(self, name: str, part: int | None = None) -> Iterator[None]:
        self.current = name
        first = None if self._device is None else self._device.mark()
        start = time.perf_counter()
        yield  # after an exception `current` must go on naming this operation
        end = time.perf_counter()
        if self._device is None:
            self._seconds[name] = self._seconds.get(name, 0.0) + end - start
        else:
            self._device.note(name, first, self._seconds)
        if self.events is not None:
            self.events.append(Event(name, start, end, part))
        self.current = PREPARE
