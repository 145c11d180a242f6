"""The meter of a run: how many payload bytes this worker has sent, and where that number comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod

import thinwire as tw
from thinwire_lab.net.counters import read_counters
from thinwire_lab.run.codec_choice import DDP_FP16
from thinwire_lab.run.recipe import Recipe


def ring_bytes(gradient_bytes: int, workers: int) -> float:
    """What each of N workers sends in a ring all-reduce: 2 (N - 1) / N times the size of the gradients."""
    return 2 * (workers - 1) / workers * gradient_bytes


class ByteMeter(ABC):
    """Counts while training runs; `pause` and `resume` leave out evaluation and checkpoints."""

    source: str

    @abstractmethod
    def resume(self) -> None:
        """Count from here on."""

    @abstractmethod
    def pause(self) -> None:
        """Stop counting."""

    @abstractmethod
    def sent_bytes(self, steps: int) -> float:
        """Bytes sent in the `steps` steps run so far."""


class InterfaceMeter(ByteMeter):
    """Reads the counters of this host's interface: what the kernel saw, without the headers of TCP/IP."""

    source = "interface counters, TCP/IP headers taken off"

    def __init__(self) -> None:
        self._total = 0
        self._start = 0

    def resume(self) -> None:
        self._start = self._payload()

    def pause(self) -> None:
        self._total += self._payload() - self._start

    def sent_bytes(self, steps: int) -> float:
        return float(self._total)

    def _payload(self) -> int:
        return read_counters().tx_payload_bytes


class CompressorMeter(ByteMeter):
    """Asks the compressor, whose group counts every call."""

    source = "thinwire's meter"

    def __init__(self, compressor: tw.Compressor) -> None:
        self._compressor = compressor

    def resume(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def pause(self) -> None:
        """Nothing to do: only exchanges are counted."""

    def sent_bytes(self, steps: int) -> float:
        per_step: float = self._compressor.report().to_dict()["bytes_per_step"]
        return per_step * steps


class ComputedMeter(ByteMeter):
    """Computes what a ring all-reduce of all gradients sends, where nothing can be measured."""

    source = "computed: ring all-reduce"

    def __init__(self, gradient_bytes: int, workers: int) -> None:
        self._per_step = ring_bytes(gradient_bytes, workers)

    def resume(self) -> None:
        """Nothing to do: nothing is measured."""

    def pause(self) -> None:
        """Nothing to do: nothing is measured."""

    def sent_bytes(self, steps: int) -> float:
        return self._per_step * steps


def meter_for(
    recipe: Recipe, num_parameters: int, compressor: tw.Compressor | None, counters: bool
) -> ByteMeter:
    """The best there is: interface counters, then the compressor, then arithmetic."""
    if counters:
        return InterfaceMeter()
    if compressor is not None:
        return CompressorMeter(compressor)
    element_bytes = 2 if recipe.codec == DDP_FP16 else 4
    return ComputedMeter(element_bytes * num_parameters, recipe.workers)
