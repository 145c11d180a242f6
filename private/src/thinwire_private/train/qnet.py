"""QNet: the torch module of a graph, trained first in floating point, then on the graph's integer grid."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import floor, log, log2, sqrt
from typing import Any

import torch
from numpy import float32, nextafter
from torch import Tensor, nn
from torch.nn import functional

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import (
    Add,
    Conv,
    GraphNode,
    Input,
    MaxPool,
    Output,
    Requant,
    SumPool,
    Weighted,
)
from thinwire_private.net.widths import bias_limit

LN2 = log(2.0)


class _Lsq(torch.autograd.Function):
    """v, t -> v^ = q s, q = clip(floor(v / s + 1/2), low, high), s = 2^-round(t).

    Rounding is straight-through: the gradient of v passes where v / s is inside the range, the step's is
    LSQ's: (q - v / s) inside, low or high outside, scaled by 1 / sqrt(n * high). With low = 0 this is a ReLU
    too. Learning t = -log2 s instead of s is TQT's form (Jain et al. 2020); LSQ: Esser et al. 2020.
    """

    @staticmethod
    def forward(ctx: Any, v: Tensor, t: Tensor, exponent: int, low: int, high: int) -> Tensor:
        scaled = v * 2.0**exponent
        q = (scaled + 0.5).floor_().clamp_(low, high)
        ctx.save_for_backward(scaled, q)
        ctx.facts = exponent, low, high
        return q * 2.0**-exponent

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        scaled, q = ctx.saved_tensors
        exponent, low, high = ctx.facts
        (grad,) = grads
        passed = inside(grad, scaled, low, high)
        scale = -LN2 * 2.0**-exponent / sqrt(max(1, q.numel() * high))  # ds/dt = -s ln 2
        # q - v/s inside, low or high outside
        step_grad = (grad * q).sub_(passed * scaled).sum() * scale
        return passed, step_grad.reshape(()), None, None, None


def inside(grad: Tensor, scaled: Tensor, low: int, high: int) -> Tensor:
    """The gradient where low <= scaled <= high, else 0: one pass over memory, where masks take five.

    torch's operator leaves the bounds themselves out, so it gets the single-precision numbers next to them.
    """
    bounds = (nextafter(float32(end), float32(end + way)) for end, way in ((low, -1), (high, 1)))
    passed: Tensor = torch.ops.aten.hardtanh_backward(grad, scaled, *map(float, bounds))
    return passed


class Quantizer(nn.Module):
    """LSQ with a learned power-of-two step, for weights (signed) or activations (unsigned).

    real = integer * 2^-exponent, exponent = round(t).
    """

    t: Tensor

    def __init__(self, signed: bool) -> None:
        super().__init__()
        self.signed = signed
        self.t = nn.Parameter(torch.zeros(()))

    def range(self, bits: int) -> tuple[int, int]:
        """The smallest and the largest integer."""
        return (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if self.signed else (0, (1 << bits) - 1)

    def exponent(self, finest: int | None = None) -> int:
        """The exponent in use; at most `finest`, so that re-quantization never has to shift left."""
        exponent = floor(self.t.item() + 0.5)
        return exponent if finest is None else min(exponent, finest)

    def forward(self, v: Tensor, bits: int, finest: int | None = None) -> Tensor:
        """v rounded to the grid."""
        grid = (self.exponent(finest), *self.range(bits))
        quantized: Tensor = _Lsq.apply(v, self.t, *grid)  # type: ignore[no-untyped-call]
        return quantized

    @torch.no_grad()
    def fit(self, v: Tensor, bits: int) -> None:
        """Choose the exponent of least squared error on a sample."""
        low, high = self.range(bits)
        top = max(float(v.abs().max()), 1e-8)
        start = floor(log2(high / top)) if high else 0
        best = min(range(start - 1, start + 6), key=lambda exponent: _squared_error(v, exponent, low, high))
        self.t.fill_(float(best))


def _squared_error(v: Tensor, exponent: int, low: int, high: int) -> float:
    q = (v * 2.0**exponent + 0.5).floor_().clamp_(low, high) * 2.0**-exponent
    return float((q - v.clamp(min=0) if low == 0 else q - v).square().sum())


@dataclass(frozen=True)
class FixedPoint:
    """A tensor of fixed-point numbers: integers times 2^-exponent."""

    real: Tensor
    exponent: int


class QLayer(nn.Module):
    """Weights of one layer; with a norm while it trains in floating point, later folded into them."""

    def __init__(self, node: Weighted, normed: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(node.weight_shape))
        nn.init.kaiming_normal_(self.weight, nonlinearity="relu")
        self.bias = nn.Parameter(torch.zeros(node.weight_shape[0]))
        self.norm = nn.BatchNorm2d(node.weight_shape[0]) if normed else None
        self.quantizer = Quantizer(signed=True)

    @torch.no_grad()
    def fold(self) -> None:
        """Put the norm into weight and bias: w * gamma / sigma, beta + (b - mu) * gamma / sigma."""
        if self.norm is None:
            return
        norm, self.norm = self.norm, None
        assert norm.running_mean is not None
        assert norm.running_var is not None
        factor = norm.weight / (norm.running_var + norm.eps).sqrt()
        self.weight.mul_(factor.view(-1, 1, 1, 1))
        self.bias.copy_(norm.bias + (self.bias - norm.running_mean) * factor)


def key(name: str) -> str:
    """A node's name as torch allows it."""
    return name.replace(".", "_")


class QNet(nn.Module):
    """A graph as a torch module.

    In floating point (`quantized` False) layers have batch norms, ReLUs are ReLUs. `quantize(sample)` folds
    the norms and sets all steps from a sample; from then on every number is an integer times a power of two,
    the very integers that the oracle computes. `widths(graph, sample)` changes bit widths and keeps weights.
    """

    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self.graph = graph
        self.quantized = False
        last = graph.layers[-1].name
        self.layers = nn.ModuleDict(
            {key(node.name): QLayer(node, node.kind == "conv" and node.name != last) for node in graph.layers}
        )
        self.steps = nn.ModuleDict({key(node.name): Quantizer(signed=False) for node in graph.of(Requant)})
        self._sampling = False

    def layer(self, name: str) -> QLayer:
        """The weights of a node."""
        found = self.layers[key(name)]
        assert isinstance(found, QLayer)
        return found

    def step(self, name: str) -> Quantizer:
        """The quantizer of a requant."""
        found = self.steps[key(name)]
        assert isinstance(found, Quantizer)
        return found

    def forward(self, x: Tensor) -> Tensor:
        """Logits for pictures given as integers (of any dtype)."""
        return self.trace(x)[self.graph.output.name].real

    def trace(self, x: Tensor) -> dict[str, FixedPoint]:
        """Every node's output."""
        dtype = next(self.parameters()).dtype
        exponent = self.graph.input.exponent
        found = {self.graph.input.name: FixedPoint(x.to(dtype) * 2.0**-exponent, exponent)}
        for node in self.graph.nodes[1:]:
            found[node.name] = self._given(node, [found[source] for source in node.sources])
        return found

    def _given(self, node: GraphNode, given: list[FixedPoint]) -> FixedPoint:
        x = given[0]
        match node:
            case Weighted():
                return self._product(node, x)
            case Requant():
                return self._requant(node, x)
            case Add():
                return FixedPoint(x.real + given[1].real, max(x.exponent, given[1].exponent))
            case SumPool():
                # the integers are added up; that the real number is the average, is a matter of the exponent
                real = functional.avg_pool2d(x.real, node.kernel, node.stride)
                return FixedPoint(real, x.exponent + pool_exponent(node))
            case MaxPool():
                real = functional.max_pool2d(x.real, node.kernel, node.stride, node.padding)
                return FixedPoint(real, x.exponent)
            case Output() | Input():
                return x
            case _:
                raise ModelError(f"node {node.name!r} of kind {node.kind!r} cannot be trained")

    def _product(self, node: Weighted, x: FixedPoint) -> FixedPoint:
        layer, exponent = self.layer(node.name), 0
        weight: Tensor = layer.weight
        bias: Tensor = layer.bias
        if self.quantized:
            if self._sampling:
                layer.quantizer.fit(weight, node.weight_bits)
            weight = layer.quantizer(weight, node.weight_bits)
            exponent = x.exponent + layer.quantizer.exponent()
            bias = on_grid(bias, exponent, bias_limit(node))
        if isinstance(node, Conv):
            y = functional.conv2d(x.real, weight, bias, node.stride, node.padding)
        else:
            y = functional.linear(x.real.flatten(1), weight, bias)
        return FixedPoint(layer.norm(y) if layer.norm is not None else y, exponent)

    def _requant(self, node: Requant, x: FixedPoint) -> FixedPoint:
        if not self.quantized:
            return FixedPoint(functional.relu(x.real), 0)
        step = self.step(node.name)
        if self._sampling:
            step.fit(x.real, node.value.bits)
        return FixedPoint(step(x.real, node.value.bits, x.exponent), step.exponent(x.exponent))

    @torch.no_grad()
    def quantize(self, sample: Tensor) -> None:
        """Fold the norms and go to the integer grid, with steps of least squared error on the sample."""
        for node in self.graph.layers:
            self.layer(node.name).fold()
        self.quantized, self._sampling = True, True
        self.trace(sample)
        self._sampling = False

    def widths(self, graph: Graph, sample: Tensor) -> None:
        """Take over the widths of another graph of the same network and set the steps anew."""
        if [node.name for node in graph] != [node.name for node in self.graph]:
            raise ModelError(f"graph {graph.name!r} has other nodes than this network: change widths only")
        self.graph = graph
        self.quantize(sample)


def pool_exponent(node: SumPool) -> int:
    """log2 of the window, which must be a power of two for the average to be on the grid."""
    window = node.kernel**2
    if window & (window - 1):
        raise ModelError(f"node {node.name!r} pools windows of {window}: only powers of two can be trained")
    return window.bit_length() - 1


def on_grid(bias: Tensor, exponent: int, limit: int) -> Tensor:
    """The bias rounded to the accumulator's grid, straight-through."""
    rounded = (bias.detach() * 2.0**exponent + 0.5).floor().clamp(-limit, limit) * 2.0**-exponent
    return bias + (rounded - bias.detach())


def parameters_by_role(net: QNet) -> Mapping[str, list[nn.Parameter]]:
    """Weights, biases and norms, steps: each wants its own learning rate and decay."""
    weights: list[nn.Parameter] = []
    steps: list[nn.Parameter] = []
    rest: list[nn.Parameter] = []
    for name, parameter in net.named_parameters():
        (steps if name.endswith(".t") else weights if parameter.dim() > 1 else rest).append(parameter)
    return {"weights": weights, "steps": steps, "rest": rest}
