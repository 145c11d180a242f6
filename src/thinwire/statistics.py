"""What a compressor did so far: bytes by layer and, now and then, the relative error by layer."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from torch import Tensor

from thinwire.lane import Lane, agree_bytes
from thinwire.spec import Layout

ERROR_EVERY = 100  # steps between two measurements of the error: decoding one's own payload is not free


@dataclass
class LayerStatistics:
    """One tensor: what it sends in a step and how far its payload was from its gradient."""

    name: str
    numel: int
    codec: str
    bytes_per_step: float
    error_energy: float = 0.0
    energy: float = 0.0

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

    def wants_error(self, step: int) -> bool:
        return self.error_every > 0 and step % self.error_every == 0

    def note_lanes(self, lanes: list[Lane]) -> None:
        """A bucket's lanes: each tensor gets its share of what the lane sends."""
        words = sum(lane.bound.packer.agree_words for lane in lanes)
        for lane in lanes:
            agreeing = agree_bytes(lanes) * lane.bound.packer.agree_words / words if words else 0.0
            per_element = (lane.sent_bytes + agreeing) / max(1, lane.layout.numel)
            for spec in lane.layout.specs:
                known = self.layers.get(spec.name)
                if known is None:
                    known = LayerStatistics(spec.name, spec.numel, str(lane.bound.codec), 0.0)
                    self.layers[spec.name] = known
                known.bytes_per_step = per_element * spec.numel

    def note_error(self, x: Tensor, own: Tensor, layout: Layout) -> None:
        for spec, piece in zip(layout.specs, layout.slices, strict=True):
            energy = float(x[piece].norm()) ** 2
            error = float((x[piece] - own[piece]).norm()) ** 2
            if math.isfinite(energy) and math.isfinite(error):
                self.layers[spec.name].energy += energy
                self.layers[spec.name].error_energy += error
