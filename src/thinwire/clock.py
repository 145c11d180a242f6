"""Seconds by stage of the line, and the stage that is running (errors name it)."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

STAGES = ("agree", "encode", "travel", "merge", "decode")
COMPARE = "compare plans"  # of an exchange that has no time of its own: it happens once
PREPARE = "prepare"


class Clock:
    """Adds up wall-clock time by stage.

    >>> clock = Clock()
    >>> with clock.stage("encode"): pass
    >>> clock.seconds["encode"] >= 0
    True
    """

    def __init__(self) -> None:
        self.seconds = dict.fromkeys(STAGES, 0.0)
        self.current = PREPARE

    @contextlib.contextmanager
    def stage(self, name: str) -> Iterator[None]:
        self.current = name
        start = time.perf_counter()
        yield  # after an exception `current` must go on naming this stage
        self.seconds[name] += time.perf_counter() - start
        self.current = PREPARE
