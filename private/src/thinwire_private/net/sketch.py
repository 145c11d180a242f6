"""Sketch: a pencil that draws graphs node by node, inferring shapes, widths and plausible shifts."""

from __future__ import annotations

from math import ceil, log2, sqrt

from thinwire_private.net.bits import Bits
from thinwire_private.net.columns import out_size
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, Conv, Input, Linear, MaxPool, Node, Output, Requant, SumPool
from thinwire_private.net.value import Value, accumulator, activation
from thinwire_private.net.widths import settled

# How large numbers are expected to be: root mean square over range, of activations and of random weights.
TYPICAL_ACTIVATION = 0.35
TYPICAL_WEIGHT = 1 / sqrt(12)
HEADROOM = 3.0  # an activation's range is this many times the accumulator's root mean square


class Sketch:
    """Draws a network without weights. Methods return the name of the node drawn, to be read by later ones.

    Shifts are guessed from public widths, so that random weights give lively activations; training sets them.
    """

    def __init__(self, name: str, shape: tuple[int, ...], input_bits: int, bits: Bits) -> None:
        self._name, self._bits = name, bits
        self._nodes: dict[str, Node] = {}
        self._rms: dict[str, float] = {}
        self._draw(Input("input", (), (), activation(shape, input_bits), input_bits), 0.5 * 2**input_bits)

    def conv(
        self,
        name: str,
        x: str,
        out: int,
        kernel: int = 3,
        stride: int = 1,
        *,
        padding: int | None = None,
        end: bool = False,
    ) -> str:
        """A convolution; by default it keeps the size (divided by its stride): padding is half the kernel."""
        taken = self.value(x)
        padding = kernel // 2 if padding is None else padding
        side = out_size(taken.shape[1], kernel, stride, padding)
        weight_bits = self._bits.of_weight(name, end)
        depth = taken.shape[0] * kernel**2
        value = accumulator((out, side, side), weight_bits + taken.bits + ceil(log2(depth)))
        node = Conv(
            name,
            (x,),
            (taken,),
            value,
            weight_bits,
            kernel=kernel,
            stride=stride,
            padding=padding,
        )
        return self._draw(node, self._product_rms(x, depth, weight_bits))

    def linear(self, name: str, x: str, out: int, *, end: bool = True) -> str:
        """A fully connected layer."""
        taken = self.value(x)
        weight_bits = self._bits.of_weight(name, end)
        value = accumulator((out,), weight_bits + taken.bits + ceil(log2(taken.size)))
        return self._draw(
            Linear(name, (x,), (taken,), value, weight_bits), self._product_rms(x, taken.size, weight_bits)
        )

    def relu(self, name: str, x: str, *, end: bool = False, bits: int | None = None) -> str:
        """ReLU and re-quantization to the width of this place in the network."""
        width = self._bits.of_activation(name, end) if bits is None else bits
        taken = self.value(x)
        top = HEADROOM * self._rms[x] if taken.signed else 2.0**taken.bits
        shift = min(max(0, round(log2(top)) - width), taken.bits - 1)
        node = Requant(name, (x,), (taken,), activation(taken.shape, width), shift, relu=taken.signed)
        return self._draw(node, TYPICAL_ACTIVATION * 2**width)

    def add(self, name: str, x: str, shortcut: str) -> str:
        """The residual sum at accumulator scale."""
        ratio = round(log2(self._rms[x] / self._rms[shortcut]))
        shifts = (max(0, -ratio), max(0, ratio))
        taken = (self.value(x), self.value(shortcut))
        bits = 2 + max(value.bits + shift for value, shift in zip(taken, shifts, strict=True))
        node = Add(name, (x, shortcut), taken, accumulator(taken[0].shape, bits), shifts)
        return self._draw(node, sqrt(2) * self._rms[x] * 2 ** shifts[0])

    def sum_pool(self, name: str, x: str, kernel: int, *, end: bool = False) -> str:
        """An average pool: sums, and the requant that divides."""
        taken = self.value(x)
        shape = (taken.shape[0], *(out_size(side, kernel, kernel, 0) for side in taken.shape[1:]))
        value = activation(shape, (taken.high * kernel**2).bit_length())
        pooled = self._draw(
            SumPool(f"{name}.sum", (x,), (taken,), value, kernel, kernel), self._rms[x] * kernel**2
        )
        return self.relu(name, pooled, end=end)

    def max_pool(self, name: str, x: str, kernel: int, stride: int, padding: int = 0) -> str:
        """A max pool; draw it between a convolution and its relu."""
        taken = self.value(x)
        shape = (taken.shape[0], *(out_size(side, kernel, stride, padding) for side in taken.shape[1:]))
        value = Value(shape, taken.bits, taken.signed)
        return self._draw(MaxPool(name, (x,), (taken,), value, kernel, stride, padding), self._rms[x])

    def finish(self, x: str) -> Graph:
        """The graph whose logits are node x, with worst-case accumulators."""
        taken = self.value(x)
        self._draw(Output("output", (x,), (taken,), taken), 1.0)
        return Graph(self._name, settled(tuple(self._nodes.values())))

    def residual(self, name: str, x: str) -> tuple[str, str]:
        """relu of x as (next convolution's activation, shortcut), the latter in its own width if asked."""
        width = self._bits.residual
        if width is None:
            y = self.relu(name, x)
            return y, y
        shortcut = self.relu(f"{name}.res", x, bits=width)
        return self.relu(name, shortcut), shortcut

    def _product_rms(self, x: str, depth: int, weight_bits: int) -> float:
        return sqrt(depth) * TYPICAL_WEIGHT * float(1 << weight_bits) * self._rms[x]

    def value(self, x: str) -> Value:
        """What a node gives."""
        return self._nodes[x].value

    def _draw(self, node: Node, rms: float) -> str:
        self._nodes[node.name] = node
        self._rms[node.name] = rms
        return node.name
