"""A machine: what kind it is, for telling measurements apart. No host name."""

from __future__ import annotations

import os
import platform
from pathlib import Path

from thinwire.kernels import backends


def machine_kind() -> str:
    """Processor, cores that this process may use, and the kernels that run on it.

    >>> "cores" in machine_kind()
    True
    """
    return f"{_processor()}, {usable_cores()} cores, {next(iter(backends()))}"


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
