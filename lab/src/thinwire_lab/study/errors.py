"""The error study: every method on every snapshot at equal bits per element, and what explains it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torch import Tensor

from thinwire_lab.study.correlation import Correlation, correlation, correlation_of
from thinwire_lab.study.fit import Fit, fit
from thinwire_lab.study.methods import Method
from thinwire_lab.study.probe import passed_through
from thinwire_lab.study.snapshot import Snapshot, relative_error

TARGETS = (1.6, 2.0, 4.0)  # bits per element: terngrad's, the paper's fft:0.85 with 10 bits, qsgd's usual
LAYER_TARGET = 2.0  # at which single tensors are looked at


@dataclass(frozen=True)
class Error:
    """The relative error of one method on one snapshot at one target."""

    subject: str
    moment: str
    method: str
    codec: str
    target: float
    bits: float
    meets: bool
    error: float


@dataclass(frozen=True)
class Layer:
    """One tensor of one snapshot: what its neighbours say, and the errors of all methods at 2 bits."""

    subject: str
    moment: str
    name: str
    numel: int
    correlation: Correlation
    errors: dict[str, float]


@dataclass(frozen=True)
class Finding:
    """All that was found out about one snapshot."""

    subject: str
    moment: str
    step: int
    num_steps: int
    loss: float
    numel: int
    num_tensors: int
    dense_names: tuple[str, ...]
    correlation: Correlation
    errors: tuple[Error, ...]
    layers: tuple[Layer, ...]

    def rows(self) -> list[dict[str, Any]]:
        """Plain values for JSON lines: the snapshot, its errors, its layers."""
        about = {name: value for name, value in asdict(self).items() if name not in ("errors", "layers")}
        return [
            {"row": "snapshot", **about},
            *({"row": "error", **asdict(error)} for error in self.errors),
            *({"row": "layer", **asdict(layer)} for layer in self.layers),
        ]


def find_errors(
    snapshot: Snapshot, methods: Sequence[Method], targets: Sequence[float], seed: int = 0
) -> Finding:
    """Fits every method to every target and measures |g - Q(g)| / |g|; no memory, one step."""
    window = len(snapshot.before)
    fits = [fit(method, snapshot.layout, target, window) for method in methods for target in targets]
    decoded = {own.codec: _decoded(own, snapshot, seed) for own in {f.codec: f for f in fits}.values()}
    errors = [
        Error(
            snapshot.subject,
            snapshot.moment,
            own.method.name,
            own.codec,
            own.target,
            own.bits,
            own.meets,
            relative_error(snapshot.gradient, decoded[own.codec]),
        )
        for own in fits
    ]
    near = {own.method.name: decoded[own.codec] for own in fits if own.target == LAYER_TARGET and own.meets}
    return Finding(
        snapshot.subject,
        snapshot.moment,
        snapshot.step,
        snapshot.num_steps,
        snapshot.loss,
        snapshot.numel,
        len(snapshot.layout.specs),
        snapshot.dense_names,
        correlation_of(snapshot),
        tuple(errors),
        tuple(_layers(snapshot, near)),
    )


def _decoded(own: Fit, snapshot: Snapshot, seed: int) -> Tensor:
    warm_up = len(snapshot.before) if own.method.learns else 0
    return passed_through(own.codec, snapshot, warm_up, seed)


def _layers(snapshot: Snapshot, decoded: dict[str, Tensor]) -> list[Layer]:
    pieces = {method: snapshot.tensors(flat) for method, flat in decoded.items()}
    return [
        Layer(
            snapshot.subject,
            snapshot.moment,
            name,
            x.numel(),
            correlation(x),
            {method: relative_error(x, own[name]) for method, own in pieces.items()},
        )
        for name, x in snapshot.tensors(snapshot.gradient).items()
    ]
