"""Nodes: the layers of a quantized network, each a frozen record of its public facts and its integers.

Integer semantics: weights are signed l_w-bit integers, activations unsigned l_x-bit ones, every scale is a
power of two. A layer is acc = W x + b, exact; a Requant then computes
y = min(2^l_x - 1, max(0, (acc + 2^(s-1)) >> s)): round half up, ReLU, clamp.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
# A float64 holds every integer below 2^53, so a BLAS product of narrower integers is exact in any order.
EXACT_BITS = 53


@dataclass(frozen=True)
class Value:
    """Integers of one shape (without the batch axis).

    An activation is unsigned, 0 <= x < 2^bits: its sign is known, so protocols may keep it in bits + 1 bits
    with a top bit that is surely 0. An accumulator is signed: -2^(bits-1) <= x < 2^(bits-1).
    """

    shape: tuple[int, ...]
    bits: int
    signed: bool

    @property
    def size(self) -> int:
        """Number of integers."""
        return prod(self.shape)

    @property
    def low(self) -> int:
        """The smallest integer that fits."""
        return -(1 << (self.bits - 1)) if self.signed else 0

    @property
    def high(self) -> int:
        """The largest integer that fits."""
        return (1 << (self.bits - self.signed)) - 1


def activation(shape: tuple[int, ...], bits: int) -> Value:
    """An unsigned value of l_x = `bits` bits."""
    return Value(shape, bits, signed=False)


def accumulator(shape: tuple[int, ...], bits: int) -> Value:
    """A signed value of l_acc = `bits` bits."""
    return Value(shape, bits, signed=True)


def out_size(size: int, kernel: int, stride: int, padding: int) -> int:
    """How many places a window has along an axis.

    >>> out_size(32, 3, 2, 1)
    16
    """
    return (size + 2 * padding - kernel) // stride + 1


def windows(x: NDArray[Any], kernel: int, stride: int, padding: int, fill: int = 0) -> NDArray[Any]:
    """A view of every window of x (N, C, H, W), shape (N, C, H', W', kernel, kernel); borders hold `fill`."""
    if padding:
        edge = (padding, padding)
        x = np.pad(x, ((0, 0), (0, 0), edge, edge), constant_values=fill)
    view = np.lib.stride_tricks.sliding_window_view(x, (kernel, kernel), axis=(2, 3))
    return view[:, :, ::stride, ::stride]


def columns(x: NDArray[Any], kernel: int, stride: int, padding: int) -> NDArray[Any]:
    """x (N, C, H, W) as (N, C*kernel*kernel, H'*W'): row (c, i, j) is what kernel entry (c, i, j) meets.

    Any number type, also shares of a ring: W (K, C*k*k) @ columns(x) is the convolution.

    >>> columns(np.arange(9).reshape(1, 1, 3, 3), 2, 1, 0)[0].tolist()
    [[0, 1, 3, 4], [1, 2, 4, 5], [3, 4, 6, 7], [4, 5, 7, 8]]
    """
    view = windows(x, kernel, stride, padding)
    batch, channels, height, width = view.shape[:4]
    flat = view.transpose(0, 1, 4, 5, 2, 3).reshape(batch, channels * kernel * kernel, height * width)
    return np.ascontiguousarray(flat)


@dataclass(frozen=True, eq=False)
class GraphNode(ABC):
    """One layer: `sources` names the nodes it reads, `taken` is what they give, `value` what it gives."""

    kind: ClassVar[str]
    name: str
    sources: tuple[str, ...]
    taken: tuple[Value, ...]
    value: Value

    @abstractmethod
    def apply(self, *x: IntArray) -> IntArray:
        """The node's output for a batch: exactly what the two parties' shares must add up to."""


@dataclass(frozen=True, eq=False)
class Input(GraphNode):
    """The client's picture: unsigned integers of `value.bits` bits; a real pixel is integer * 2^-exponent."""

    kind = "input"
    exponent: int = 0

    def apply(self, *x: IntArray) -> IntArray:
        return x[0]


@dataclass(frozen=True, eq=False)
class Weighted(GraphNode):
    """A product with the server's weights: acc = W x + b, W (d1 x d2), x (d2 x d3); gives an accumulator."""

    weight_bits: int
    weight: IntArray | None = None
    bias: IntArray | None = None

    @property
    @abstractmethod
    def dims(self) -> tuple[int, int, int]:
        """(d1, d2, d3) of the matrix product."""

    @property
    @abstractmethod
    def weight_shape(self) -> tuple[int, ...]:
        """The shape of `weight`; its first axis counts output channels."""

    @abstractmethod
    def operand(self, x: IntArray) -> IntArray:
        """The matrix x (N, d2, d3) that W is multiplied with."""

    @property
    def macs(self) -> int:
        """Multiplications for one picture."""
        d1, d2, d3 = self.dims
        return d1 * d2 * d3

    @property
    def in_bits(self) -> int:
        """l_x."""
        return self.taken[0].bits

    @property
    def acc_bits(self) -> int:
        """l_acc."""
        return self.value.bits

    def matrix(self) -> IntArray:
        """W as d1 x d2."""
        if self.weight is None:
            raise ValueError(f"layer {self.name} has no weights: this graph is for costs only")
        return self.weight.reshape(self.dims[0], self.dims[1])

    def apply(self, *x: IntArray) -> IntArray:
        product = exact_product(self.matrix(), self.operand(x[0]), self.acc_bits)
        if self.bias is not None:
            product += self.bias[:, None]
        return product.reshape(len(product), *self.value.shape)


@dataclass(frozen=True, eq=False)
class Conv(Weighted):
    """A convolution with square kernels; weight (K, C, kernel, kernel), zero padding."""

    kind = "conv"
    kernel: int = 1
    stride: int = 1
    padding: int = 0

    @property
    def dims(self) -> tuple[int, int, int]:
        channels = self.taken[0].shape[0]
        out, height, width = self.value.shape
        return out, channels * self.kernel**2, height * width

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.value.shape[0], self.taken[0].shape[0], self.kernel, self.kernel

    def operand(self, x: IntArray) -> IntArray:
        return columns(x, self.kernel, self.stride, self.padding)


@dataclass(frozen=True, eq=False)
class Linear(Weighted):
    """A fully connected layer over the flattened (C, H, W) input; weight (outputs, inputs)."""

    kind = "linear"

    @property
    def dims(self) -> tuple[int, int, int]:
        return self.value.size, self.taken[0].size, 1

    @property
    def weight_shape(self) -> tuple[int, ...]:
        return self.dims[:2]

    def operand(self, x: IntArray) -> IntArray:
        return x.reshape(len(x), -1, 1)


@dataclass(frozen=True, eq=False)
class Add(GraphNode):
    """The residual sum at accumulator scale: (a << shifts[0]) + (b << shifts[1]), one shift at least being 0.

    a is an accumulator; b the shortcut: an activation or, behind a down-sampling convolution, another one.
    """

    kind = "add"
    shifts: tuple[int, int] = (0, 0)

    def apply(self, *x: IntArray) -> IntArray:
        return (x[0] << self.shifts[0]) + (x[1] << self.shifts[1])


@dataclass(frozen=True, eq=False)
class SumPool(GraphNode):
    """Sums over windows of an activation; an average pool whose division is left to the next shift."""

    kind = "sum_pool"
    kernel: int = 2
    stride: int = 2

    def apply(self, *x: IntArray) -> IntArray:
        sums: IntArray = windows(x[0], self.kernel, self.stride, 0).sum(axis=(4, 5))
        return sums


@dataclass(frozen=True, eq=False)
class MaxPool(GraphNode):
    """Largest entry of every window; stands before the ReLU, which gives the same and costs less."""

    kind = "max_pool"
    kernel: int = 2
    stride: int = 2
    padding: int = 0

    def apply(self, *x: IntArray) -> IntArray:
        smallest = self.taken[0].low
        highest: IntArray = windows(x[0], self.kernel, self.stride, self.padding, smallest).max(axis=(4, 5))
        return highest


@dataclass(frozen=True, eq=False)
class Requant(GraphNode):
    """Re-quantization: round half up by `shift` bits, ReLU, clamp; gives an activation of value.bits bits.

    Without `relu` the input must be unsigned (a SumPool, an activation), so that there is no sign to lose.
    Without `clamp` (the fast mode) high bits are dropped instead: y mod 2^l_x.
    """

    kind = "requant"
    shift: int = 0
    relu: bool = True
    clamp: bool = True

    def shifted(self, x: IntArray) -> IntArray:
        """What would come out if the output had bits enough: y before the clamp."""
        half = (1 << self.shift) >> 1
        y: IntArray = (x + half) >> self.shift
        return np.maximum(y, 0) if self.relu else y

    def apply(self, *x: IntArray) -> IntArray:
        y = self.shifted(x[0])
        return np.minimum(y, self.value.high) if self.clamp else y & self.value.high


@dataclass(frozen=True, eq=False)
class Output(GraphNode):
    """What the client learns: logits (a real logit is integer * 2^-exponent), or only where the largest is.

    Of equal logits the first counts as the largest.
    """

    kind = "output"
    argmax: bool = False
    exponent: int = 0

    def apply(self, *x: IntArray) -> IntArray:
        return x[0].argmax(axis=1, keepdims=True) if self.argmax else x[0]


def exact_product(weight: IntArray, x: IntArray, acc_bits: int) -> IntArray:
    """weight (d1, d2) @ x (N, d2, d3), exact; by floating-point BLAS where no sum needs more than 53 bits."""
    if acc_bits <= EXACT_BITS:
        return (weight.astype(np.float64) @ x.astype(np.float64)).astype(np.int64)
    return weight @ x
