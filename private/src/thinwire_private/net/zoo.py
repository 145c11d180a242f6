"""The zoo: networks by name at any bit widths, drawn node by node with a Sketch; random weights for them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, log2, sqrt
from types import MappingProxyType

import numpy as np

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import (
    Add,
    Conv,
    GraphNode,
    Input,
    IntArray,
    Linear,
    MaxPool,
    Output,
    Requant,
    SumPool,
    Value,
    Weighted,
    accumulator,
    activation,
    out_size,
)
from thinwire_private.net.widths import Bits, fit_accumulators, read_bits

# How large numbers are expected to be: root mean square over range, of activations and of random weights.
TYPICAL_ACTIVATION = 0.35
TYPICAL_WEIGHT = 1 / sqrt(12)
HEADROOM = 3.0  # an activation's range is this many times the accumulator's root mean square
# Weight bits that PrivQuant's authors list for the 30 middle 3x3 convolutions of ResNet-32 (budget 0.37) and
# for the six middle convolutions of MiniONN (budget 0.29); activations have 6 bits.
RESNET32_LIST = tuple(map(int, "322222424242224242424443333333"))
MINIONN_LIST = (2, 2, 2, 4, 8, 4)
LISTS: Mapping[str, tuple[int, ...]] = MappingProxyType({"resnet32": RESNET32_LIST, "minionn": MINIONN_LIST})
LIST = "list"  # instead of one width for all layers: the list of the paper's authors


class Sketch:
    """Draws a network without weights. Methods return the name of the node drawn, to be read by later ones.

    Shifts are guessed from public widths, so that random weights give lively activations; training sets them.
    """

    def __init__(self, name: str, shape: tuple[int, ...], input_bits: int, bits: Bits) -> None:
        self._name, self._bits = name, bits
        self._nodes: dict[str, GraphNode] = {}
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
        return Graph(self._name, fit_accumulators(tuple(self._nodes.values())))

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

    def _draw(self, node: GraphNode, rms: float) -> str:
        self._nodes[node.name] = node
        self._rms[node.name] = rms
        return node.name


def digits(bits: Bits, classes: int = 10) -> Graph:
    """Three convolutions for pictures of 8x8 pixels with 17 grey levels: 231,680 MAC, 2,048 ReLUs."""
    net = Sketch("digits", (1, 8, 8), 5, bits)
    x = net.relu("relu1", net.conv("conv1", "input", 16, end=True))
    x = net.relu("relu2", net.conv("conv2", x, 32, stride=2))
    x = net.relu("relu3", net.conv("conv3", x, 32))
    x = net.sum_pool("pool", x, 2, end=True)
    return net.finish(net.linear("fc", x, classes))


def minionn(bits: Bits, classes: int = 10) -> Graph:
    """MiniONN's CIFAR-10 network (Liu et al. 2017, figure 13) with average pools: 61.1 M MAC, 173 k ReLUs."""
    net = Sketch("minionn", (3, 32, 32), max(8, bits.ends), bits)
    x = net.relu("relu1", net.conv("conv1", "input", 64, end=True))
    x = net.relu("relu2", net.conv("conv2", x, 64))
    x = net.sum_pool("pool2", x, 2)
    x = net.relu("relu3", net.conv("conv3", x, 64))
    x = net.relu("relu4", net.conv("conv4", x, 64))
    x = net.sum_pool("pool4", x, 2)
    x = net.relu("relu5", net.conv("conv5", x, 64))
    x = net.relu("relu6", net.conv("conv6", x, 64, 1))
    x = net.relu("relu7", net.conv("conv7", x, 16, 1), end=True)
    return net.finish(net.linear("fc", x, classes))


def resnet8w(bits: Bits, classes: int = 10) -> Graph:
    """ResNet-8 of MLPerf Tiny's shape (16, 32, 64 channels, 1x1 shortcuts): 12.5 M MAC."""
    return _cifar_resnet("resnet8w", 1, bits, classes)


def resnet32(bits: Bits, classes: int = 10) -> Graph:
    """ResNet-32 for pictures of 32x32 (He et al. 2015) with 1x1 shortcuts: 69.1 M MAC, 303 k ReLUs."""
    return _cifar_resnet("resnet32", 5, bits, classes)


def _cifar_resnet(name: str, depth: int, bits: Bits, classes: int) -> Graph:
    net = Sketch(name, (3, 32, 32), max(8, bits.ends), bits)
    x, shortcut = net.residual("stem.relu", net.conv("stem", "input", 16, end=True))
    blocks = [(stage, block) for stage in range(3) for block in range(depth)]
    for stage, block in blocks:
        out, stride, at = 16 << stage, 2 if stage and not block else 1, f"s{stage + 1}b{block + 1}"
        y = net.relu(f"{at}.relu1", net.conv(f"{at}.conv1", x, out, stride=stride))
        y = net.conv(f"{at}.conv2", y, out)
        if stride == 2:
            shortcut = net.conv(f"{at}.short", x, out, 1, stride)
        total = net.add(f"{at}.add", y, shortcut)
        if (stage, block) == blocks[-1]:
            x = net.relu(f"{at}.relu2", total)
        else:
            x, shortcut = net.residual(f"{at}.relu2", total)
    x = net.sum_pool("pool", x, 8, end=True)
    return net.finish(net.linear("fc", x, classes))


def resnet50(bits: Bits, classes: int = 1000) -> Graph:
    """ResNet-50 for pictures of 224x224: for costs only, 20 GB and more per picture."""
    net = Sketch("resnet50", (3, 224, 224), max(8, bits.ends), bits)
    stem = net.max_pool("stem.pool", net.conv("stem", "input", 64, 7, 2, end=True), 3, 2, 1)
    x, shortcut = net.residual("stem.relu", stem)
    blocks = [(stage, block) for stage, depth in enumerate((3, 4, 6, 3)) for block in range(depth)]
    for stage, block in blocks:
        width, stride, at = 64 << stage, 2 if stage and not block else 1, f"s{stage + 1}b{block + 1}"
        y = net.relu(f"{at}.relu1", net.conv(f"{at}.conv1", x, width, 1))
        y = net.relu(f"{at}.relu2", net.conv(f"{at}.conv2", y, width, 3, stride))
        y = net.conv(f"{at}.conv3", y, 4 * width, 1)
        if not block:
            shortcut = net.conv(f"{at}.short", x, 4 * width, 1, stride)
        total = net.add(f"{at}.add", y, shortcut)
        if (stage, block) == blocks[-1]:
            x = net.relu(f"{at}.relu3", total)
        else:
            x, shortcut = net.residual(f"{at}.relu3", total)
    x = net.sum_pool("pool", x, 7, end=True)
    return net.finish(net.linear("fc", x, classes))


ZOO: Mapping[str, Callable[..., Graph]] = MappingProxyType(
    {"digits": digits, "minionn": minionn, "resnet8w": resnet8w, "resnet32": resnet32, "resnet50": resnet50}
)


def read_net(text: str) -> Graph:
    """A network with widths behind a colon: "resnet32:W4A6", or "resnet32:list" for mixed precision."""
    name, _, bits = text.partition(":")
    if bits != LIST:
        return build(name, read_bits(bits or "W4A6"))
    if name not in LISTS:
        raise ModelError(f"no list of widths is known for {name}: write widths, as in {name}:W4A6")
    return listed(name, LISTS[name], read_bits("W4A6"))


def build(name: str, bits: Bits) -> Graph:
    """The network called `name` at these widths."""
    if name not in ZOO:
        raise ModelError(f"unknown network {name!r}: choose one of {', '.join(ZOO)}")
    return ZOO[name](bits)


def middle_layers(graph: Graph) -> tuple[str, ...]:
    """The layers that a list of weight bits speaks of: all but the first, the last and 1x1 shortcuts."""
    return tuple(layer.name for layer in graph.layers[1:-1] if not layer.name.endswith(".short"))


def listed(name: str, widths: tuple[int, ...], bits: Bits) -> Graph:
    """The network with weight bits given as a list over its middle layers.

    A 1x1 shortcut gets the bits of the first convolution beside it.
    """
    layers = build(name, bits).layers
    chosen = bits.with_list(middle_layers(build(name, bits)), widths)
    beside = {
        layer.name: chosen.weights[layer.name.replace(".short", ".conv1")]
        for layer in layers
        if layer.name.endswith(".short")
    }
    return build(
        name,
        bits.with_list(tuple(chosen.weights), tuple(chosen.weights.values())).with_list(
            tuple(beside), tuple(beside.values())
        ),
    )


def with_random_weights(graph: Graph, seed: int = 0) -> Graph:
    """The graph with weights drawn evenly from their range, and small biases."""
    generator = np.random.default_rng(seed)

    def filled(layer: Weighted) -> Weighted:
        half = 1 << (layer.weight_bits - 1)
        weight = generator.integers(-half, half, layer.weight_shape, dtype=np.int64)
        bias = generator.integers(-half, half, layer.weight_shape[:1], dtype=np.int64)
        return replace(layer, weight=weight, bias=bias)

    full = {layer.name: filled(layer) for layer in graph.layers}
    return graph.map(lambda node: full.get(node.name, node))


def random_pictures(graph: Graph, count: int, seed: int = 0) -> IntArray:
    """Inputs drawn evenly from the input's range: (count, *shape)."""
    value = graph.input.value
    generator = np.random.default_rng(seed)
    return generator.integers(0, value.high + 1, (count, *value.shape), dtype=np.int64)
