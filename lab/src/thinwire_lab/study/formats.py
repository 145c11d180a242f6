"""Number formats on recorded gradients: range floats against fp8, fp16, bf16 and uniform steps."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from thinwire_lab.study.methods import Snapshot, passed_through, relative_error

Rounded = tuple[Tensor, float]  # a tensor in a format, and the largest number the format could have given
BITS = (8, 10, 16)


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
