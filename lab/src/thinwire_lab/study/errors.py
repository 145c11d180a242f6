"""Errors of compression on recorded gradients: methods at equal bits, number formats, and correlation."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from thinwire_lab.study.methods import Method, MethodFit, Snapshot, fit_method, passed_through, relative_error

KEEP = 0.15  # the paper's: theta = 0.85
CHUNK = 4096
# White Gaussian noise, keep 15 %: what selecting captures of the energy in frequency and in place.
WHITE_IN_FREQUENCY, WHITE_IN_PLACE = 0.431, 0.559
BREAK_EVEN = 0.5  # lag-1 correlation of an AR(1) signal for which both capture the same
TARGETS = (1.6, 2.0, 4.0)  # bits per element: terngrad's, the paper's fft:0.85 with 10 bits, qsgd's usual
LAYER_TARGET = 2.0  # at which single tensors are looked at
Rounded = tuple[Tensor, float]  # a tensor in a format, and the largest number the format could have given
BITS = (8, 10, 16)


@dataclass(frozen=True)
class Correlation:
    """Of one tensor, or of all tensors of a snapshot weighted by their energy."""

    lag1: float  # sum x_i x_(i+1) / sum x_i^2, in the flattened order
    in_frequency: float  # share of the energy in the 15 % strongest bins
    in_chunks: float  # the same, of transforms of 4096 numbers
    in_place: float  # share of the energy in the 15 % largest elements


def lag1(x: Tensor) -> float:
    """How much an element says about the next one: about rho for an AR(1) signal, 0 for a white one."""
    x = x.double()
    energy = float(x.square().sum())
    return float((x[:-1] * x[1:]).sum()) / energy if energy > 0 else 0.0


def captured_in_place(x: Tensor, keep: float = KEEP) -> float:
    """The share of the energy that the largest elements hold."""
    return _captured(x.double().square(), keep)


def captured_in_frequency(x: Tensor, keep: float = KEEP, chunk: int | None = None) -> float:
    """The share of the energy that the strongest bins of the half spectrum hold.

    Bins other than DC and Nyquist stand for two; a last, shorter chunk is transformed at its own length.
    """
    chunks = [x] if chunk is None else torch.split(x, chunk)
    return _captured(torch.cat([bin_energies(piece.double()) for piece in chunks]), keep)


def bin_energies(x: Tensor) -> Tensor:
    """The energies of the half spectrum's bins; their sum is that of the elements."""
    energies: Tensor = torch.fft.rfft(x, norm="ortho").abs().square()
    energies[1 : (x.numel() + 1) // 2] *= 2
    return energies


def _captured(energies: Tensor, keep: float) -> float:
    total = float(energies.sum())
    count = max(1, round(keep * energies.numel()))
    return float(energies.topk(count).values.sum()) / total if total > 0 else 1.0


def correlation(x: Tensor) -> Correlation:
    """Of one tensor."""
    return Correlation(
        lag1(x), captured_in_frequency(x), captured_in_frequency(x, chunk=CHUNK), captured_in_place(x)
    )


def correlation_of(snapshot: Snapshot) -> Correlation:
    """Of all tensors: each counts as its energy does in the error over the whole model."""
    tensors = list(snapshot.tensors(snapshot.gradient).values())
    energies = [float(x.double().square().sum()) for x in tensors]
    total = sum(energies) or 1.0
    own = [correlation(x) for x in tensors]

    def mean(values: list[float]) -> float:
        return sum(e * value for e, value in zip(energies, values, strict=True)) / total

    return Correlation(
        mean([c.lag1 for c in own]),
        mean([c.in_frequency for c in own]),
        mean([c.in_chunks for c in own]),
        mean([c.in_place for c in own]),
    )


@dataclass(frozen=True)
class MethodError:
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
class LayerErrors:
    """One tensor of one snapshot: what its neighbours say, and the errors of all methods at 2 bits."""

    subject: str
    moment: str
    name: str
    numel: int
    correlation: Correlation
    errors: dict[str, float]


@dataclass(frozen=True)
class GradientErrors:
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
    errors: tuple[MethodError, ...]
    layers: tuple[LayerErrors, ...]

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
) -> GradientErrors:
    """Fits every method to every target and measures |g - Q(g)| / |g|; no memory, one step."""
    window = len(snapshot.before)
    fits = [fit_method(method, snapshot.layout, target, window) for method in methods for target in targets]
    decoded = {own.codec: _decoded(own, snapshot, seed) for own in {f.codec: f for f in fits}.values()}
    errors = [
        MethodError(
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
    return GradientErrors(
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


def _decoded(own: MethodFit, snapshot: Snapshot, seed: int) -> Tensor:
    warm_up = len(snapshot.before) if own.method.learns else 0
    return passed_through(own.codec, snapshot, warm_up, seed)


def _layers(snapshot: Snapshot, decoded: dict[str, Tensor]) -> list[LayerErrors]:
    pieces = {method: snapshot.tensors(flat) for method, flat in decoded.items()}
    return [
        LayerErrors(
            snapshot.subject,
            snapshot.moment,
            name,
            x.numel(),
            correlation(x),
            {method: relative_error(x, own[name]) for method, own in pieces.items()},
        )
        for name, x in snapshot.tensors(snapshot.gradient).items()
    ]


@dataclass(frozen=True)
class Format:
    """A number format: a codec text that the engine runs, or a rounding of one tensor written here."""

    name: str
    bits: int
    codec: str | None = None
    rounding: Callable[[Tensor], Rounded] | None = None


@dataclass(frozen=True)
class FormatError:
    """What a format does to all tensors of a snapshot; each tensor has its own scale or range."""

    subject: str
    moment: str
    format: str
    bits: int
    error: float
    underflow: float  # share of the numbers other than zero that become zero
    saturation: float  # share of all numbers beyond the largest of the format

    def row(self) -> dict[str, Any]:
        """Plain values for JSON lines."""
        return {"row": "format", **asdict(self)}


def cast(dtype: torch.dtype, scaled: bool) -> Callable[[Tensor], Rounded]:
    """Rounding to a float type of torch; scaled: by the power of two that brings max|x| under its top."""
    top = torch.finfo(dtype).max

    def rounding(x: Tensor) -> Rounded:
        scale = power_of_two(x, top) if scaled else 1.0
        # float8_e4m3fn has no infinity: what lies beyond its top would become NaN
        numbers = (x.double() * scale).clamp(-top, top).to(dtype)
        return (numbers.double() / scale).float(), top / scale

    return rounding


def power_of_two(x: Tensor, top: float) -> float:
    """The largest power of two by which x can be multiplied without going beyond `top`."""
    peak = float(x.abs().max())
    return 2.0 ** math.floor(math.log2(top / peak)) if peak > 0 else 1.0


def uniform(bits: int) -> Callable[[Tensor], Rounded]:
    """Rounding to the nearest of 2^bits - 1 equal steps from -max|x| to max|x|."""
    levels = 2 ** (bits - 1) - 1

    def rounding(x: Tensor) -> Rounded:
        peak = float(x.abs().max())
        step = peak / levels if peak > 0 else 1.0
        return (x.double() / step).round().mul(step).float(), peak

    return rounding


FORMATS: Sequence[Format] = (
    Format("rangefloat", 8, codec="rangefloat:8"),
    Format("e4m3 scaled", 8, rounding=cast(torch.float8_e4m3fn, scaled=True)),
    Format("e4m3", 8, rounding=cast(torch.float8_e4m3fn, scaled=False)),
    Format("e5m2 scaled", 8, rounding=cast(torch.float8_e5m2, scaled=True)),
    Format("e5m2", 8, rounding=cast(torch.float8_e5m2, scaled=False)),
    Format("uniform", 8, rounding=uniform(8)),
    Format("rangefloat", 10, codec="rangefloat:10"),
    Format("uniform", 10, rounding=uniform(10)),
    Format("rangefloat", 16, codec="rangefloat:16"),
    Format("fp16 scaled", 16, rounding=cast(torch.float16, scaled=True)),
    Format("fp16", 16, rounding=cast(torch.float16, scaled=False)),
    Format("bf16", 16, rounding=cast(torch.bfloat16, scaled=False)),
    Format("uniform", 16, rounding=uniform(16)),
)


def measure_formats(snapshot: Snapshot, formats: Sequence[Format] = FORMATS) -> list[FormatError]:
    """Every format on every tensor of a snapshot; the error is over all tensors."""
    return [_measure(snapshot, own) for own in formats]


def _measure(snapshot: Snapshot, own: Format) -> FormatError:
    tensors = snapshot.tensors(snapshot.gradient)
    if own.codec is not None:
        arrived = snapshot.tensors(passed_through(own.codec, snapshot))
        rounded = {name: (q, float(q.abs().max())) for name, q in arrived.items()}
    else:
        assert own.rounding is not None
        rounded = {name: own.rounding(x) for name, x in tensors.items()}
    lost = beyond = nonzero = 0
    for name, x in tensors.items():
        q, top = rounded[name]
        nonzero += int((x != 0).sum())
        lost += int(((x != 0) & (q == 0)).sum())
        beyond += int((x.abs() > top).sum())
    everything = torch.cat([rounded[name][0] for name in tensors])
    return FormatError(
        snapshot.subject,
        snapshot.moment,
        own.name,
        own.bits,
        relative_error(snapshot.gradient, everything),
        lost / max(1, nonzero),
        beyond / snapshot.numel,
    )
