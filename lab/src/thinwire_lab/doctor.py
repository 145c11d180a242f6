"""The doctor: looks at this machine and says what thinwire can do on it."""

from __future__ import annotations

import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata

import torch

import thinwire
from thinwire.errors import ThinwireError
from thinwire.kernels import backends, native_problem

PACKAGES = ("numpy", "typer", "rich", "matplotlib", "scikit-learn")
KERNEL_NUMEL = 1 << 20


@dataclass(frozen=True)
class Finding:
    """One thing looked at; `good` is False where something is missing that a user may want."""

    name: str
    value: str
    good: bool = True


def examine(measure_link: bool) -> list[Finding]:
    """Everything worth knowing, in the order in which a person asks."""
    findings = [
        Finding("thinwire", thinwire.__version__),
        Finding("python", f"{platform.python_version()} at {sys.prefix}"),
        Finding("torch", f"{torch.__version__}, {torch.get_num_threads()} threads"),
        *_packages(),
        _native(),
        _kernel_speed(),
        _cuda(),
        _backends(),
        _netlab(),
    ]
    return [*findings, _link()] if measure_link else findings


def _packages() -> Iterator[Finding]:
    for name in PACKAGES:
        try:
            yield Finding(name, metadata.version(name))
        except metadata.PackageNotFoundError:
            yield Finding(name, f"not installed: run pip install {name}", good=False)


def _native() -> Finding:
    problem = native_problem()
    if problem is not None:
        return Finding(
            "kernels", f"reference only ({problem}): install a C++ compiler, reinstall", good=False
        )
    return Finding("kernels", ", ".join(backends()) + f"; used: {next(iter(backends()))}")


def _kernel_speed() -> Finding:
    from thinwire_lab.bench.micro import bench_kernels

    row = next(bench_kernels(["terngrad"], KERNEL_NUMEL, 5))
    text = f"encode {row['encode_x_copy']:.1f}x copy_, decode {row['decode_x_copy']:.1f}x copy_ (1 thread)"
    return Finding("terngrad speed", text)


def _cuda() -> Finding:
    if torch.cuda.is_available():
        return Finding("CUDA", f"{torch.cuda.get_device_name()}; the reference kernels run there")
    return Finding("CUDA", "none; gradients on the CPU", good=False)


def _backends() -> Finding:
    import torch.distributed as dist

    found = [
        name
        for name, there in (
            ("gloo", dist.is_gloo_available()),
            ("nccl", dist.is_nccl_available()),
            ("mpi", dist.is_mpi_available()),
        )
        if there
    ]
    return Finding("torch.distributed", ", ".join(found) or "no backend", good=bool(found))


def _netlab() -> Finding:
    from thinwire_lab.net.netlab import available

    problem = available()
    if problem is None:
        return Finding("netlab", "can run: hosts as network namespaces, links shaped by the kernel")
    return Finding("netlab", f"cannot run ({problem}); slow links are emulated instead", good=False)


def _link() -> Finding:
    from thinwire_lab.net.link_speed import measure_link

    try:
        speed = measure_link()
    except ThinwireError as error:
        return Finding("link", f"not measured: {error}", good=False)
    return Finding("link", str(speed))
