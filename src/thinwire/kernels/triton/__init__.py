"""The kernels in Triton, for GPUs: the bits of the reference. Imported only where a GPU is used.

Products, eigenvectors and Fourier transforms are those of the reference, elementwise operations of torch in
one written-down order: they run on a GPU as they are, in many launches (docs/background/gpu.md).
"""

from __future__ import annotations

from thinwire.kernels.base import Kernels
from thinwire.kernels.reference import fourier
from thinwire.kernels.reference import linalg as products
from thinwire.kernels.triton import hadamard, natural, qsgd, rangefloat, sign, ternary, topk


def kernels() -> Kernels:
    """The set of kernels for GPUs."""
    return Kernels(
        "triton",
        ternary=ternary,
        topk=topk,
        qsgd=qsgd,
        sign=sign,
        natural=natural,
        rangefloat=rangefloat,
        products=products,
        fourier=fourier,
        hadamard=hadamard,
        on_device=True,
    )
