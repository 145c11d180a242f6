"""The oracle against a second, slow definition; accumulators that no sum can leave; the fast mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Conv, IntArray, Requant
from thinwire_private.net.oracle import overflows, predict, run, trace
from thinwire_private.net.widths import Bits, bias_limit, fit_accumulators, read_bits, signed_bits
from thinwire_private.net.zoo import Sketch, build, random_pictures, with_random_weights


def everything(bits: Bits) -> Graph:
    """A tiny network with every kind of node."""
    net = Sketch("everything", (2, 6, 6), 4, bits)
    stem = net.max_pool("max", net.conv("stem", "input", 3, end=True), 2, 2)
    x, shortcut = net.residual("relu1", stem)
    total = net.add("add", net.conv("conv", x, 3), shortcut)
    y = net.relu("relu2", total)
    short = net.conv("short", x, 4, 1, 1)
    total = net.add("add2", net.conv("conv2", y, 4), short)
    z = net.sum_pool("avg", net.relu("relu3", total), 2, end=True)
    return net.finish(net.linear("fc", z, 5))


def slow_conv(node: Conv, x: IntArray) -> IntArray:
    """A convolution straight from its definition, in Python integers."""
    assert node.weight is not None
    assert node.bias is not None
    out = np.zeros(node.value.shape, np.int64)
    channels, height, width = x.shape
    for k, i, j in np.ndindex(*out.shape):
        total = int(node.bias[k])
        for c, a, b in np.ndindex(channels, node.kernel, node.kernel):
            row, column = i * node.stride + a - node.padding, j * node.stride + b - node.padding
            if 0 <= row < height and 0 <= column < width:
                total += int(node.weight[k, c, a, b]) * int(x[c, row, column])
        out[k, i, j] = total
    return out


@pytest.mark.parametrize("bits", ["W2A3", "W8A8R6", "W16A16"])
def test_every_node_is_what_its_definition_says(bits: str) -> None:
    graph = with_random_weights(everything(read_bits(bits)))
    found = {name: value[0] for name, value in trace(graph, random_pictures(graph, 1)).items()}
    for node in graph.of(Conv):
        np.testing.assert_array_equal(found[node.name], slow_conv(node, found[node.sources[0]]))
    for requant in graph.of(Requant):
        x, y = found[requant.sources[0]], found[requant.name]
        for before, after in zip(x.flat, y.flat, strict=True):
            exact = int(np.floor(int(before) / 2**requant.shift + 0.5))
            assert after == min(max(exact, 0), 2**requant.value.bits - 1)
    pooled = found["max"]
    assert pooled[1, 0, 2] == found["stem"][1, 0:2, 4:6].max()
    add = graph["add2"]
    first, second = (found[source] for source in add.sources)
    np.testing.assert_array_equal(found["add2"], first * 2 ** add.shifts[0] + second * 2 ** add.shifts[1])  # type: ignore[attr-defined]
    assert found["avg.sum"][2, 0, 0] == found["relu3"][2, 0:2, 0:2].sum()
    fc = graph.layers[-1]
    assert fc.bias is not None
    np.testing.assert_array_equal(found["fc"], fc.matrix() @ found["avg"].reshape(-1) + fc.bias)


@pytest.mark.parametrize("rule", ["worst", "weights"])
def test_no_sum_leaves_its_accumulator(rule: str) -> None:
    """Weights and inputs at their extremes reach the ends of the range, and never pass them."""
    graph = everything(read_bits("W3A4"))
    for sign in (-1, 1):
        extreme = {
            layer.name: replace(
                layer,
                weight=np.full(layer.weight_shape, -4 if sign < 0 else 3)
                * (32 if layer.weight_bits == 8 else 1),
                bias=np.full(layer.weight_shape[0], sign * bias_limit(layer)),
            )
            for layer in graph.layers
        }
        loud = graph.map(lambda node, extreme=extreme: extreme.get(node.name, node)).fit_accumulators(rule)  # type: ignore[misc]
        found = trace(loud, np.full((1, 2, 6, 6), 15))
        for node in loud:
            assert node.value.low <= found[node.name].min()
            assert found[node.name].max() <= node.value.high
        for node in loud.of(Requant):
            if not node.taken[0].signed:
                continue
            half = (1 << node.shift) >> 1
            assert found[node.sources[0]].max() + half <= node.taken[0].high


def test_worst_case_is_the_formula_of_the_note() -> None:
    graph = build("resnet32", read_bits("W4A6"))
    widths = {layer.name: layer.acc_bits for layer in graph.layers}
    assert widths["s1b1.conv1"] == 18  # 16x144x1024 at W4A6
    assert {layer.name: layer.acc_bits for layer in build("resnet32", read_bits("W2A6")).layers}[
        "s1b1.conv1"
    ] == 16
    tight = with_random_weights(graph).fit_accumulators("weights")
    assert all(a.acc_bits <= b.acc_bits for a, b in zip(tight.layers, graph.layers, strict=True))
    assert tight["s1b1.conv1"].value.bits < 18
    assert signed_bits(-(1 << 17), (1 << 17) - 1) == 18


def test_rounding_has_room() -> None:
    """A shift by all but one bit adds half the range: the tight accumulator must be wide enough for that."""
    graph = with_random_weights(everything(read_bits("W2A3"))).fit_accumulators("weights")
    node = graph["relu3"]
    steep = replace(node, shift=node.taken[0].bits - 1)  # type: ignore[call-arg]
    nodes = tuple(steep if each is node else each for each in graph)
    wider = fit_accumulators(nodes, "weights")
    place = [each.name for each in nodes].index("add2")
    assert wider[place].value.bits == graph["add2"].value.bits + 1


def test_widths_from_weights_need_weights() -> None:
    with pytest.raises(ModelError, match="need the weights"):
        build("digits", Bits()).fit_accumulators("weights")


def test_the_fast_mode_drops_high_bits_and_counts_them() -> None:
    graph = with_random_weights(build("digits", read_bits("W4A4")))
    first = graph.of(Requant)[0]
    narrow = graph.map(lambda node: replace(node, shift=node.shift - 3) if node is first else node)  # type: ignore[attr-defined]
    x = random_pictures(graph, 8)
    lost = {each.node: each.count for each in overflows(narrow, x)}
    assert lost["relu1"] > 0
    clamped, wrapped = trace(narrow, x), trace(narrow.fast(), x)
    above = narrow.of(Requant)[0].shifted(clamped["conv1"]) > 15
    assert above.sum() == lost["relu1"]
    assert (clamped["relu1"][above] == 15).all()
    np.testing.assert_array_equal(clamped["relu1"][~above], wrapped["relu1"][~above])
    np.testing.assert_array_equal(
        wrapped["relu1"][above], narrow.of(Requant)[0].shifted(clamped["conv1"])[above] % 16
    )


def test_wrong_inputs_are_refused() -> None:
    graph = with_random_weights(build("digits", Bits()))
    with pytest.raises(ModelError, match="takes pictures of 1x8x8"):
        run(graph, np.zeros((1, 8, 9), np.int64))
    with pytest.raises(ModelError, match="integers from 0 to 31"):
        run(graph, np.full((1, 8, 8), 32))
    with pytest.raises(ModelError, match="holds float64 numbers"):
        run(graph, np.zeros((1, 8, 8)))  # type: ignore[arg-type]


def test_argmax_is_the_place_of_the_largest_logit() -> None:
    graph = with_random_weights(build("digits", Bits()))
    quiet = graph.map(lambda node: replace(node, argmax=True) if node is graph.output else node)
    x = random_pictures(graph, 5)
    np.testing.assert_array_equal(predict(quiet, x), run(graph, x).argmax(axis=1))


def test_graphs_that_do_not_fit_together_are_refused() -> None:
    graph = build("digits", Bits())
    with pytest.raises(ModelError, match="does not stand before it"):
        Graph("x", (graph.nodes[0], *graph.nodes[2:]))
    with pytest.raises(ModelError, match="one input, its first node"):
        Graph("x", graph.nodes[:-1])
    with pytest.raises(ModelError, match="two nodes are called 'input'"):
        Graph("x", (graph.nodes[0], graph.nodes[0]))
