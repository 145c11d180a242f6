"""Sensitivity: how much the loss grows when one layer alone is quantized to given widths.

Fisher form:      Omega_i(l_w, l_x) = sum((y - y_q)^2 * (dL/dy)^2), y = W x + b in floating point, y_q with
                  both W and x on their grids; diagonal Fisher information, one batch, covers activations too.
Full Fisher:      Omega_i(l_w, l_x) = 1/2 sum_pictures(sum((y - y_q) * dL/dy)^2), the Fisher matrix along the
                  rounding error: a weight errs alike in all pixels, which the diagonal does not see.
Hutchinson form:  Omega_i(l_w, l_x) = Tr(H_i) / n_i * |Q(W) - W|^2 (HAWQ, Dong et al. 2020), the trace of the
                  Hessian from Rademacher probes v: E[v' H v]; activations by the Fisher form.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import torch
from torch import Tensor
from torch.nn import functional

from thinwire_private.errors import ModelError
from thinwire_private.net.nodes import Conv, Weighted
from thinwire_private.train.qnet import QNet, Quantizer

Choice = tuple[int, int]  # l_w, l_x
PROBES = 8
Weigh = Callable[[Tensor, Tensor], float]  # an error of a layer's output and the loss's gradient there


@dataclass(frozen=True)
class WidthOptions:
    """For which widths: pairs (l_w, l_x) for each layer, and l_x for requants that feed sums and pools."""

    layers: Mapping[str, Sequence[Choice]]
    requants: Mapping[str, Sequence[int]]


@dataclass(frozen=True)
class Omega:
    """The answers: Omega of each layer, and of each requant on its way to a sum or a pool."""

    layers: Mapping[str, Mapping[Choice, float]]
    requants: Mapping[str, Mapping[int, float]]


@dataclass(frozen=True)
class LayerSample:
    """What a layer saw on the batch: its input, its output and the loss's gradient there."""

    x: Tensor
    y: Tensor
    grad: Tensor


def fisher(net: QNet, x: Tensor, y: Tensor, asked: WidthOptions) -> Omega:
    """Omega in (diagonal) Fisher form; the net stays in floating point."""
    return _fisher(net, x, y, asked, lambda error, grad: float((error * grad).square().sum()))


def full_fisher(net: QNet, x: Tensor, y: Tensor, asked: WidthOptions) -> Omega:
    """Omega by the full Fisher matrix along the error; costs no more than the diagonal."""
    return _fisher(
        net, x, y, asked, lambda error, grad: 0.5 * float((error * grad).flatten(1).sum(1).square().sum())
    )


def _fisher(net: QNet, x: Tensor, y: Tensor, asked: WidthOptions, weigh: Weigh) -> Omega:
    net, seen = _watch(net, x, y, asked)
    layers = {name: _of_layer(net, name, wanted, seen[name], weigh) for name, wanted in asked.layers.items()}
    requants = {
        name: {
            bits: _weighed(rounded(seen[name].y, bits, signed=False), seen[name], weigh) for bits in wanted
        }
        for name, wanted in asked.requants.items()
    }
    return Omega(layers, requants)


def _weighed(y: Tensor, seen: LayerSample, weigh: Weigh) -> float:
    return weigh(y - seen.y, seen.grad)


@torch.no_grad()
def _of_layer(
    net: QNet, name: str, wanted: Sequence[Choice], seen: LayerSample, weigh: Weigh
) -> dict[Choice, float]:
    """Omega of one layer; every width is rounded to only once."""
    layer, node = net.layer(name), net.graph[name]
    assert isinstance(node, Weighted)
    weights = {bits: rounded(layer.weight, bits, signed=True) for bits in {choice[0] for choice in wanted}}
    inputs = {bits: rounded(seen.x, bits, signed=False) for bits in {choice[1] for choice in wanted}}
    return {
        (weight_bits, in_bits): _weighed(
            product(node, inputs[in_bits], weights[weight_bits], layer.bias), seen, weigh
        )
        for weight_bits, in_bits in wanted
    }


def hutchinson(net: QNet, x: Tensor, y: Tensor, asked: WidthOptions) -> Omega:
    """Omega in Hutchinson form; what activations cost comes from the Fisher form at 16-bit weights."""
    wide = {name: [(16, in_bits) for _, in_bits in wanted] for name, wanted in asked.layers.items()}
    by_activation = fisher(net, x, y, WidthOptions(wide, asked.requants))
    traces = traces_of_hessian(net, x, y, list(asked.layers))
    found: dict[str, dict[Choice, float]] = {}
    for name, wanted in asked.layers.items():
        weight = net_folded(net).layer(name).weight.detach()
        found[name] = {}
        for weight_bits, in_bits in wanted:
            moved = float((rounded(weight, weight_bits, signed=True) - weight).square().sum())
            curved = 0.5 * max(traces[name], 0.0) / weight.numel() * moved
            found[name][weight_bits, in_bits] = curved * len(x) + by_activation.layers[name][16, in_bits]
    return Omega(found, by_activation.requants)


def traces_of_hessian(net: QNet, x: Tensor, y: Tensor, names: Sequence[str]) -> dict[str, float]:
    """Tr(H_i) of the mean loss for each layer's weights, from PROBES Rademacher vectors."""
    net = net_folded(net)
    weights = [net.layer(name).weight for name in names]
    loss = functional.cross_entropy(net(x), y)
    grads = torch.autograd.grad(loss, weights, create_graph=True)
    totals = dict.fromkeys(names, 0.0)
    for _ in range(PROBES):
        probes = [torch.randint_like(weight, 2) * 2 - 1 for weight in weights]
        curved = torch.autograd.grad(grads, weights, probes, retain_graph=True)
        for name, probe, product_ in zip(names, probes, curved, strict=True):
            totals[name] += float((probe * product_).sum()) / PROBES
    return totals


def net_folded(net: QNet) -> QNet:
    """A copy in floating point with its norms folded, so that the weights are those that get quantized."""
    if net.quantized:
        raise ModelError("sensitivity is measured on the floating-point network: do it before quantize()")
    net = copy.deepcopy(net).eval()
    for node in net.graph.layers:
        net.layer(node.name).fold()
    return net


def _watch(net: QNet, x: Tensor, y: Tensor, asked: WidthOptions) -> tuple[QNet, dict[str, LayerSample]]:
    net = net_folded(net)
    found = net.trace(x)
    outputs = {name: found[name].real for name in (*asked.layers, *asked.requants)}
    loss = functional.cross_entropy(found[net.graph.output.name].real, y, reduction="sum")
    grads = torch.autograd.grad(loss, list(outputs.values()))
    seen = {
        name: LayerSample(found[net.graph[name].sources[0]].real.detach(), outputs[name].detach(), grad)
        for name, grad in zip(outputs, grads, strict=True)
    }
    return net, seen


@torch.no_grad()
def rounded(v: Tensor, bits: int, signed: bool) -> Tensor:
    """v on the power-of-two grid of least squared error."""
    quantizer = Quantizer(signed)
    quantizer.fit(v, bits)
    y: Tensor = quantizer(v, bits)
    return y


def product(node: Weighted, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """W x + b."""
    if isinstance(node, Conv):
        return functional.conv2d(x, weight, bias, node.stride, node.padding)
    return functional.linear(x.flatten(1), weight, bias)


Measure = Callable[[QNet, Tensor, Tensor, WidthOptions], Omega]
MEASURES: Mapping[str, Measure] = MappingProxyType(
    {"fisher": fisher, "full-fisher": full_fisher, "hutchinson": hutchinson}
)


def measure(name: str) -> Measure:
    """The measure called `name`."""
    if name not in MEASURES:
        raise ModelError(f"unknown sensitivity {name!r}: choose one of {', '.join(MEASURES)}")
    return MEASURES[name]
