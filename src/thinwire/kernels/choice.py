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
from thinwire.kernels.reference import fourier, hadamard, natural, qsgd, rangefloat, sign, ternary, topk
from thinwire.kernels.reference import linalg as products

BEST = "THINWIRE_KERNELS"  # a variable of the environment: no faster kernels than these are used
OLDEST_TRITON, OLDEST_GPU = (3, 9), (8, 0)


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
                natural=natural,
                rangefloat=native.Rangefloat(isa),
                products=native.Products(isa),
                fourier=native.Fourier(isa),
                hadamard=native.Hadamard(isa),
                turned=native.Turned(isa),
            )
    found["reference"] = Kernels(
        "reference",
        ternary=ternary,
        topk=topk,
        qsgd=qsgd,
        sign=sign,
        natural=natural,
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


@functools.cache
def _triton() -> Kernels | str:
    """The kernels for GPUs, or the reason why there are none."""
    try:
        version = importlib.import_module("triton").__version__
    except ImportError:
        return 'Triton is missing: install "thinwire[gpu]"'
    if tuple(int(part) for part in version.split(".")[:2]) < OLDEST_TRITON:
        oldest = ".".join(map(str, OLDEST_TRITON))
        return f'Triton {version} is older than {oldest}, the first that was tested: install "thinwire[gpu]"'
    made: Kernels = importlib.import_module("thinwire.kernels.triton").kernels()
    return made


def triton_problem(capability: tuple[int, int] = OLDEST_GPU) -> str | None:
    """Why the kernels for GPUs cannot be used on a GPU of this compute capability, or None."""
    if capability < OLDEST_GPU:
        has, wants = (".".join(map(str, version)) for version in (capability, OLDEST_GPU))
        return f"the GPU has compute capability {has}, and the kernels need {wants}"
    found = _triton()
    return found if isinstance(found, str) else None


def _for_gpu(device: torch.device) -> Kernels:
    """Triton's kernels on a GPU that can run them; else the reference, which runs everywhere and is slow."""
    reference = backends()["reference"]
    if not torch.cuda.is_available() or os.environ.get(BEST) == "reference":
        return reference
    problem = triton_problem(torch.cuda.get_device_capability(device))
    if problem is not None:
        _say_gpu_once(problem)
        return reference
    return pick(device, "triton")


def look_again() -> None:
    """Forgets what was found here: the next call looks for native kernels anew, and may warn anew."""
    for cache in (_native, _triton, backends, _say_once, _say_gpu_once):
        cache.cache_clear()


def pick(device: torch.device, name: str | None = None) -> Kernels:
    """The best kernels for a device, or those of the given name."""
    available = backends()
    if name == "triton":
        found = _triton()
        if isinstance(found, str):
            raise CodecError(f'kernels "triton" cannot run here: {found}')
        return found
    if name is not None:
        if name not in available:
            raise CodecError(f'kernels "{name}" cannot run here: use one of {", ".join(available)}')
        return available[name]
    if device.type == "cuda":
        return _for_gpu(device)
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


@functools.cache
def _say_gpu_once(problem: str) -> None:
    warnings.warn(
        f"thinwire runs on its reference kernels on this GPU, many small launches instead of few: {problem}",
        stacklevel=5,
    )
