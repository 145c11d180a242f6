"""What the autotuner can do to the exchange. Every action runs on the exchange's thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from thinwire.auto.profiler import Profiler
from thinwire.auto.watch import Passes
from thinwire.groups.base import Group
from thinwire.groups.wrappers import Metered
from thinwire.perf.fit import Forecasts

DRAIN = 1.2  # times what a token bucket was seen to hold

Call = Callable[[Callable[[], Any]], Any]


class GroupActions:
    """Switches the plan of the engine, and asks the group of all workers for what all of them know alike.

    `switch` and `adopt` act on the engine: this choice from the next bucket on, and this one before a state
    is loaded.
    """

    def __init__(
        self,
        meter: Metered,
        everybody: Group,
        device: torch.device,
        profiler: Profiler,
        call: Call,
        switch: Callable[[str], None],
        adopt: Callable[[str], None],
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._meter, self._everybody, self._device, self._profiler = meter, everybody, device, profiler
        self._call, self._switch, self._adopt, self._clock = call, switch, adopt, clock
        self._zeros = torch.empty(0, dtype=torch.uint8)  # what messages of a look carry

    def adopt(self, text: str) -> None:
        """Gradients travel by this choice, whose state is loaded next."""
        self._adopt(text)

    def steer(self, text: str) -> None:
        """From this step on gradients travel by this choice; collective."""
        self._call(lambda: self._switch(text))

    def agree(self, values: Sequence[float]) -> list[float]:
        """The largest of every number over all ranks; collective. Numbers are times: none is below 0."""
        agreed: list[float] = self._call(lambda: self._largest(values))
        return agreed

    def link_s(self, nbytes: int, messages: int) -> float:
        """Seconds of a message of so many bytes, the best of a few, on the slowest rank; collective."""
        seconds: float = self._call(lambda: self._message_s(nbytes, messages))
        return seconds

    def drain(self) -> None:
        """Empties token buckets where some were seen: steps measured next are as slow as all later ones."""
        if self._profiler.burst_bytes:
            self._call(self._drain)

    @property
    def flood_bytes(self) -> int:
        """What plain DDP sends in a step: a token bucket that codecs do not empty may hold less."""
        size = self._everybody.size
        return 2 * (size - 1) * self._profiler.dense_bytes // size

    def measure(self, codecs: Sequence[str], step_s: float) -> None:
        """Probes the links and, if they are not known, the codecs; collective."""
        self._call(lambda: self._profiler.measure(codecs, step_s))

    def forecasts(self, texts: Sequence[str], passes: Passes, measured_s: Mapping[str, float]) -> Forecasts:
        """Seconds of a step by choice, fitted to those measured."""
        return self._profiler.forecasts(texts, passes, measured_s)

    def _largest(self, values: Sequence[float]) -> list[float]:
        """Bit patterns of floats that are not negative are ordered as these are."""
        words = torch.tensor(values, dtype=torch.float32, device=self._device).view(torch.int32)
        with self._meter.aside(), self._meter.turned_to(self._everybody):
            self._meter.all_reduce_max(words).wait()
        agreed: list[float] = words.view(torch.float32).tolist()
        return agreed

    def _drain(self) -> None:
        self._send(int(DRAIN * self._profiler.burst_bytes))

    def _message_s(self, nbytes: int, messages: int) -> float:
        best = float("inf")
        for _ in range(messages):
            self._largest([0.0])  # all ranks begin together
            best = min(best, self._send(nbytes))
        return self._largest([best])[0]

    def _send(self, nbytes: int) -> float:
        """Seconds of so many bytes, straight to every peer: one latency, not a walk around a ring."""
        peers = self._everybody.size
        row = 1 + nbytes // (peers - 1)
        if self._zeros.numel() < peers * row:  # numpy's: pages that nobody writes to cost nothing
            self._zeros = torch.from_numpy(np.zeros(peers * row, np.uint8)).to(self._device)
        send = self._zeros[: peers * row].view(peers, row)
        receive = torch.empty_like(send)
        with self._meter.aside(), self._meter.turned_to(self._everybody):
            start = self._clock()
            self._meter.all_to_all(send, receive).wait()
            return self._clock() - start
