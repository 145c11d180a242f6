"""What a compressor did so far: bytes by layer and, now and then, the relative error by layer."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from thinwire.plans.lane import Lane, tensor_bytes
from thinwire.tensors import Piece

_RUN = 1 << 18
ERROR_EVERY = 100  # steps between two measurements of the error: decoding one's own payload is not free


@dataclass
class LayerStatistics:
    """One tensor: what it sends in a step and how far its payload was from its gradient."""

    name: str
    numel: int
    codec: str
    dense_bytes: int = 0  # of its gradient as it is
    sent_bytes: float = 0.0
    exchanges: int = 0
    error_energy: float = 0.0
    energy: float = 0.0
    tallies: dict[str, float] = field(default_factory=dict)  # of the step that was measured last

    @property
    def bytes_per_step(self) -> float:
        """On average: a codec with phases sends more in one than in another."""
        return self.sent_bytes / max(1, self.exchanges)

    @property
    def relative_error(self) -> float | None:
        """sqrt(sum|g - Q(g)|^2 / sum|g|^2) over the measured steps; 0 for lossless, None if not measured."""
        if self.energy == 0.0:
            return None
        return math.sqrt(self.error_energy / self.energy)


@dataclass
class Statistics:
    """Numbers for `report()`; layers in the order in which they were first seen."""

    error_every: int = ERROR_EVERY  # 0: never
    steps: int = 0
    layers: dict[str, LayerStatistics] = field(default_factory=dict)
    _shares: dict[int, list[tuple[LayerStatistics, float]]] = field(default_factory=dict)
    _measured: dict[str, int] = field(default_factory=dict)  # the step measured last, by phase

    def wants_error(self, step: int, phase: str = "") -> bool:
        """Every `error_every` steps, and so often in every phase: some would never meet such a step."""
        last = self._measured.get(phase)
        if not self.error_every:
            return False
        fresh = bool(phase) and (last is None or step - last >= self.error_every)
        wanted = fresh or last == step or step % self.error_every == 0
        if wanted:
            self._measured[phase] = step
        return wanted

    def count_exchange(self, lanes: list[Lane]) -> None:
        """A bucket has been exchanged: each tensor gets its share of what its lane sent."""
        shares = self._shares.get(id(lanes))
        if shares is None:
            shares = self._shares[id(lanes)] = list(self._share_out(lanes))
        for layer, nbytes in shares:
            layer.sent_bytes += nbytes
            layer.exchanges += 1

    def forget_lanes(self) -> None:
        """The lanes noted so far are gone: others may come to lie where they lay."""
        self._shares.clear()

    def _share_out(self, lanes: list[Lane]) -> Iterator[tuple[LayerStatistics, float]]:
        shares = tensor_bytes(lanes)
        for lane in lanes:
            for name in dict.fromkeys(lane.layout.names):
                specs = [spec for spec in lane.layout.specs if spec.name == name]  # several: its units
                numel, nbytes = sum(spec.numel for spec in specs), sum(spec.nbytes for spec in specs)
                layer = self.layers.setdefault(name, LayerStatistics(name, numel, "", nbytes))
                layer.codec = str(lane.codec)  # the one of now: plans may be switched
                yield layer, shares[name]

    def add_error(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece]) -> None:
        """`own`, what payloads stand for, begins at element `base` of x."""
        for piece in pieces:
            meant, sent = x[piece.where], own[piece.moved(base)]
            energy = error = 0.0
            for first in range(0, piece.count, _RUN):  # no temporary as large as a tensor
                run = slice(first, first + _RUN)
                energy += float(meant[run].norm()) ** 2
                error += float((meant[run] - sent[run]).norm()) ** 2
            if math.isfinite(energy) and math.isfinite(error):
                self.layers[piece.name].energy += energy
                self.layers[piece.name].error_energy += error

    def add_tallies(self, tallies: Mapping[str, Mapping[str, float]]) -> None:
        for name, found in tallies.items():
            self.layers[name].tallies.update(found)
