"""A module `time` of a test's own: only sleeping takes time, so that nothing depends on the machine."""

from __future__ import annotations

import threading


class OwnTime(threading.local):
    """Every thread (a rank) has its own clock; stands for the module `time` where it is put in its place."""

    now = 100.0

    def monotonic(self) -> float:
        return self.now

    perf_counter = time = monotonic

    def sleep(self, seconds: float) -> None:
        self.now += seconds
