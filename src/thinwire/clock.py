"""Seconds by operation of the line, and the operation that is running (errors name it)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator
from dataclasses import dataclass

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


class Clock:
    """Adds up wall-clock time by operation. While `events` is a list, every operation is noted in it.

    >>> clock = Clock()
    >>> with clock.time("encode"): pass
    >>> clock.seconds["encode"] >= 0
    True
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(OPERATIONS, 0.0)
        self.current = PREPARE
        self.events: list[Event] | None = None

    @contextlib.contextmanager
    def time(self, name: str, part: int | None = None) -> Iterator[None]:
        self.current = name
        start = time.perf_counter()
        yield  # after an exception `current` must go on naming this operation
        end = time.perf_counter()
        self.seconds[name] = self.seconds.get(name, 0.0) + end - start
        if self.events is not None:
            self.events.append(Event(name, start, end, part))
        self.current = PREPARE
