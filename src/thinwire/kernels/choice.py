"""Which kernels can run here, and which one is taken for a device."""

from __future__ import annotations

import functools
import importlib
import os
import warnings
from types import ModuleType

import torch

from thinwire.errors import CodecError
from thinwire.kernels.base import Kernels
from thinwire.kernels.reference import fourier, hadamard, qsgd, rangefloat, sign, ternary, topk
from thinwire.kernels.reference import linalg as products

BEST = "THINWIRE_KERNELS"  # a variable of the environment: no faster kernels than these are used


@functools.cache
def _native() -> ModuleType | str:
    """The extension module, or the reason why there is none."""
    try:
        return importlib.import_module("thinwire.kernels._native")
    except ImportError as error:
        return str(error)


def native_problem() -> str | None:
    """Why the native kernels cannot be used, or None."""
    native = _native()
    return native if isinstance(native, str) else None


@functools.cache
def backends() -> dict[str, Kernels]:
    """All kernels that run on this machine's CPU, the best first, the reference last."""
    found: dict[str, Kernels] = {}
    native = _native()
    if not isinstance(native, str):
        for isa in native.instruction_sets():
            found[f"cpu-{isa}"] = Kernels(
                f"cpu-{isa}",
                ternary=native.Ternary(isa),
                topk=native.Topk(isa),
                qsgd=native.Qsgd(isa),
                sign=native.Sign(isa),
                rangefloat=native.Rangefloat(isa),
                products=native.Products(isa),
                fourier=native.Fourier(isa),
                hadamard=native.Hadamard(isa),
            )
    found["reference"] = Kernels(
        "reference",
        ternary=ternary,
        topk=topk,
        qsgd=qsgd,
        sign=sign,
        rangefloat=rangefloat,
        products=products,
        fourier=fourier,
        hadamard=hadamard,
    )
    best = os.environ.get(BEST)
    if best is None or len(found) == 1:  # the reference is slower than any that could be named
        return found
    if best not in found:
        raise CodecError(f'{BEST}="{best}" cannot run here: use one of {", ".join(found)}')
    names = list(found)
    return {name: found[name] for name in names[names.index(best) :]}


def look_again() -> None:
    """Forgets what was found here: the next call looks for native kernels anew, and may warn anew."""
    for cache in (_native, backends, _say_once):
        cache.cache_clear()


def pick(device: torch.device, name: str | None = None) -> Kernels:
    """The best kernels for a device, or those of the given name."""
    available = backends()
    if name is not None:
        if name not in available:
            raise CodecError(f'kernels "{name}" cannot run here: use one of {", ".join(available)}')
        return available[name]
    if device.type != "cpu":
        return available["reference"]
    if native_problem() is not None:
        _say_once()
    return next(iter(available.values()))


@functools.cache
def _say_once() -> None:
    warnings.warn(
        "thinwire runs on its reference kernels, 10-100 times slower than the native ones: "
        f"{native_problem()}. Install a C++ compiler and reinstall thinwire",
        stacklevel=4,
    )
