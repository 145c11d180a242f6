"""The meter of a run: how many payload bytes this worker has sent, and where that number comes from."""

from __future__ import annotations

from abc import ABC, abstractmethod

import thinwire as tw

HEADER_BYTES = 66  # Ethernet 14, IPv4 20, TCP with time stamps 32: what a packet costs beside its payload


def ring_bytes(gradient_bytes: int, workers: int) -> float:
    """What each of N workers sends in a ring all-reduce: 2 (N - 1) / N times the size of the gradients."""
    return 2 * (workers - 1) / workers * gradient_bytes


class Meter(ABC):
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


class InterfaceMeter(Meter):
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
        from thinwire.lab.netlab import read_counters

        counters = read_counters()
        return counters.tx_bytes - HEADER_BYTES * counters.tx_packets


class CompressorMeter(Meter):
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


class ComputedMeter(Meter):
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
