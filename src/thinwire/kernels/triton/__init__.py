"""The kernels in Triton, for GPUs: the bits of the reference. Imported only where a GPU is used."""

from __future__ import annotations

from thinwire.kernels.base import Kernels
from thinwire.kernels.reference import fourier, rangefloat, topk
from thinwire.kernels.reference import linalg as products
from thinwire.kernels.triton import hadamard, qsgd, sign, ternary


def kernels() -> Kernels:
    """The set of kernels for GPUs."""
    return Kernels(
        "triton",
        ternary=ternary,
        topk=topk,
        qsgd=qsgd,
        sign=sign,
        rangefloat=rangefloat,
        products=products,
        fourier=fourier,
        hadamard=hadamard,
    )
