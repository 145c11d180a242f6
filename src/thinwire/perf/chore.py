"""A chore: work like a backward pass, to see what else on the machine holds it up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import torch

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
