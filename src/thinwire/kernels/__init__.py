"""The only importer of native code: picks native or reference kernels; both give the same bits."""

from __future__ import annotations

from thinwire.kernels.base import Kernels
from thinwire.kernels.choice import backends, native_problem, pick, triton_problem

__all__ = ["Kernels", "backends", "native_problem", "pick", "triton_problem"]
