"""The zoo: networks by name, as graphs without weights at any bit widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from thinwire_private.errors import ModelError
from thinwire_private.net.bits import Bits, read_bits
from thinwire_private.net.graph import Graph
from thinwire_private.net.sketch import Sketch

# Weight bits that PrivQuant's authors list for the 30 middle 3x3 convolutions of ResNet-32 (budget 0.37) and
# for the six middle convolutions of MiniONN (budget 0.29); activations have 6 bits.
RESNET32_LIST = tuple(map(int, "322222424242224242424443333333"))
MINIONN_LIST = (2, 2, 2, 4, 8, 4)


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


LISTS: Mapping[str, tuple[int, ...]] = MappingProxyType({"resnet32": RESNET32_LIST, "minionn": MINIONN_LIST})
LIST = "list"  # instead of one width for all layers: the list of the paper's authors


def read_net(text: str) -> Graph:
    """A network with widths behind a colon: "resnet32:W4A6", or "resnet32:list" for mixed precision."""
    name, _, bits = text.partition(":")
    if bits != LIST:
        return build(name, read_bits(bits or "W4A6"))
    if name not in LISTS:
        raise ModelError(f"there is no list of widths of {name}: write widths, as in {name}:W4A6")
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
