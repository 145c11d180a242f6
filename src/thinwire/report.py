"""The report of a compressor: bytes, ratio, seconds by stage, error by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from thinwire.controls.base import Change

SHOWN_CHANGES = 10


@dataclass(frozen=True)
class LayerReport:
    """One tensor. `relative_error` is |g - Q(g)| / |g| of this rank's payload, None where not measured.

    `learnt` holds what its codec found out, such as the energy that gradiveq's basis captures, or the share
    of numbers that rangefloat could not hold in the step that was measured last.
    """

    name: str
    numel: int
    codec: str
    bytes_per_step: float
    bits_per_element: float
    relative_error: float | None
    learnt: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Report:
    """What one worker sent. `bits_per_element` counts all it sends for an element, in both directions."""

    codec: str
    world: int
    kernels: str
    steps: int
    bytes_per_step: float
    dense_bytes_per_step: float
    seconds: dict[str, float]
    layers: tuple[LayerReport, ...]
    control: str | None = None
    share: float = 1.0  # of the codec's strength, now
    theta: float | None = None  # the part that is dropped, now
    changes: tuple[Change, ...] = ()  # of the share, so far

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than an fp32 ring all-reduce; 1 if nothing travels."""
        return self.dense_bytes_per_step / self.bytes_per_step if self.bytes_per_step else 1.0

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}

    def __str__(self) -> str:
        steps = max(1, self.steps)
        stages = ", ".join(f"{name} {1e3 * s / steps:.2f}" for name, s in self.seconds.items())
        lines = [
            f"{self.codec} on {self.world} workers, {self.steps} steps, kernels {self.kernels}",
            f"{self.bytes_per_step:,.0f} bytes a step from each worker, "
            f"{self.ratio:.2f}x fewer than fp32 all-reduce",
            f"milliseconds a step: {stages}",
            *self._steered(),
            "",
        ]
        width = max((len(layer.name) for layer in self.layers), default=4)
        lines.append(
            f"{'layer':<{width}}  {'elements':>11}  {'codec':<12}  {'bytes':>11}  {'bits':>6}  error"
        )
        for layer in self.layers:
            error = "-" if layer.relative_error is None else f"{layer.relative_error:.3f}"
            lines.append(
                f"{layer.name:<{width}}  {layer.numel:>11,}  {layer.codec:<12}  "
                f"{layer.bytes_per_step:>11,.0f}  {layer.bits_per_element:>6.2f}  {error}"
                + "".join(f"  {what} {value:.4g}" for what, value in layer.learnt.items())
            )
        return "\n".join(lines)

    def _steered(self) -> list[str]:
        """The control, and the last of what it did."""
        if self.control is None:
            return []
        theta = "" if self.theta is None else f", theta {self.theta:.4g}"
        lines = [f"control {self.control}: share {self.share:.4g}{theta}, {len(self.changes)} changes"]
        hidden = len(self.changes) - SHOWN_CHANGES
        lines += [f"  ... {hidden} before"] if hidden > 0 else []
        return lines + [
            f"  step {change.step}: share {change.share:.4g}, {change.why}"
            for change in self.changes[-SHOWN_CHANGES:]
        ]
