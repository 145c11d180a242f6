"""Trace: a user's torch module as a graph, found by torch.fx.

Understood: Conv2d (square, not grouped), BatchNorm2d right after it, ReLU, MaxPool2d, AvgPool2d and
AdaptiveAvgPool2d(1) with windows of 2^k pixels, residual sums, Flatten, Linear, Dropout, Identity. Between
two layers with weights there must be a ReLU: activations are unsigned.
"""

from __future__ import annotations

import importlib
import operator
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.widths import Bits
from thinwire_private.net.zoo import Sketch
from thinwire_private.train.qnet import QNet

PASSED = (nn.Flatten, nn.Dropout, nn.Identity)
FUNCTIONS: dict[Any, str] = {
    operator.add: "add",
    operator.iadd: "add",
    torch.add: "add",
    torch.relu: "relu",
    functional.relu: "relu",
    torch.flatten: "pass",
}
METHODS = {"relu": "relu", "relu_": "relu", "add": "add", "add_": "add", "flatten": "pass", "view": "pass"}


@dataclass(frozen=True)
class TracedModule:
    """A traced module: `draw(bits)` is its graph at any widths, `fill(net)` puts its weights into a QNet."""

    name: str
    graph: fx.GraphModule
    shape: tuple[int, ...]
    input_bits: int

    def draw(self, bits: Bits) -> Graph:
        """The graph at these widths."""
        sketch = Sketch(self.name, self.shape, self.input_bits, bits)
        return sketch.finish(_Drawer(self.graph, sketch).run())

    @torch.no_grad()
    def fill(self, net: QNet) -> None:
        """Copy weights, biases and norms."""
        modules = dict(self.graph.named_modules())
        last = ""
        for node in self.graph.graph.nodes:
            if node.op != "call_module":
                continue
            module = modules[str(node.target)]
            if isinstance(module, (nn.Conv2d, nn.Linear)):
                last = str(node.target)
                layer = net.layer(last)
                layer.weight.copy_(module.weight)
                layer.bias.copy_(torch.zeros_like(layer.bias) if module.bias is None else module.bias)
            elif isinstance(module, nn.BatchNorm2d):
                norm = net.layer(last).norm
                assert norm is not None
                norm.load_state_dict(module.state_dict())


def traced(module: nn.Module, shape: tuple[int, ...], input_bits: int) -> TracedModule:
    """The module traced; raises ModelError if it cannot be a private network."""
    try:
        graph = fx.symbolic_trace(module)
    except Exception as error:  # whatever a user's forward does under tracing
        raise ModelError(
            f"{type(module).__name__} cannot be traced by torch.fx ({error}): write its forward without "
            "branches that depend on data"
        ) from error
    found = TracedModule(type(module).__name__, graph, shape, input_bits)
    found.draw(Bits())
    return found


def user_model(name: str) -> nn.Module:
    """What the function in `module:function` returns; modules in the current folder are found too."""
    module, _, function = name.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    try:
        model = getattr(importlib.import_module(module), function)()
    except (ImportError, AttributeError) as error:
        raise ModelError(f"{name} cannot be called ({error}): name it module:function") from error
    finally:
        sys.path.pop(0)
    if not isinstance(model, nn.Module):
        raise ModelError(f"{name} returned a {type(model).__name__}: it must return a torch.nn.Module")
    return model


class _Drawer:
    """Draws the nodes of an fx graph into a sketch, one after the other."""

    def __init__(self, module: fx.GraphModule, sketch: Sketch) -> None:
        self._nodes = list(module.graph.nodes)
        self._modules = dict(module.named_modules())
        self._sketch = sketch
        self._drawn: dict[fx.Node, str] = {}
        weighted = [node for node in self._nodes if isinstance(self._module(node), (nn.Conv2d, nn.Linear))]
        if not weighted:
            raise ModelError("the module has no Conv2d and no Linear: there is nothing to keep private")
        self._ends = (weighted[0], weighted[-1])

    def run(self) -> str:
        """Draw everything; returns the name of the logits."""
        for node in self._nodes:
            if node.op == "placeholder":
                self._drawn[node] = "input"
            elif node.op == "output":
                return self._drawn[node.args[0]]
            else:
                self._drawn[node] = self._draw(node, self._kind(node))
        raise ModelError("the module returns nothing")

    def _module(self, node: fx.Node) -> nn.Module | None:
        return self._modules[str(node.target)] if node.op == "call_module" else None

    def _kind(self, node: fx.Node) -> str:
        if node.op == "call_function":
            kind = FUNCTIONS.get(node.target)
        elif node.op == "call_method":
            kind = METHODS.get(str(node.target))
        else:
            kind = "module" if self._module(node) is not None else None
        if kind is None:
            raise ModelError(f"{node.format_node()} is not understood: {(__doc__ or '').splitlines()[2]} ...")
        return kind

    def _draw(self, node: fx.Node, kind: str) -> str:
        inputs = [self._drawn[given] for given in node.args if isinstance(given, fx.Node)]
        if kind == "pass":
            return inputs[0]
        if kind == "relu":
            return self._sketch.relu(node.name, inputs[0], end=self._before_last(node))
        if kind == "add":
            if not self._sketch.value(inputs[0]).signed:
                inputs.reverse()
            return self._sketch.add(node.name, *inputs)
        return self._draw_module(node, inputs[0])

    def _draw_module(self, node: fx.Node, x: str) -> str:
        module, name, end = self._module(node), str(node.target), node in self._ends
        match module:
            case nn.Conv2d():
                kernel, stride, padding = (
                    _square(module, what) for what in ("kernel_size", "stride", "padding")
                )
                if module.groups != 1 or _square(module, "dilation") != 1:
                    raise ModelError(f"{name} is grouped or dilated: only plain convolutions are understood")
                return self._sketch.conv(
                    name, x, module.out_channels, kernel, stride, padding=padding, end=end
                )
            case nn.Linear():
                return self._sketch.linear(name, x, module.out_features, end=end)
            case nn.BatchNorm2d():
                before = node.args[0]
                if not isinstance(before, fx.Node) or not isinstance(self._module(before), nn.Conv2d):
                    raise ModelError(f"{name} does not follow a convolution: it cannot be folded into one")
                return x
            case nn.ReLU():
                return self._sketch.relu(node.name, x, end=self._before_last(node))
            case nn.MaxPool2d():
                sizes = (_square(module, what) for what in ("kernel_size", "stride", "padding"))
                return self._sketch.max_pool(node.name, x, *sizes)
            case nn.AvgPool2d():
                return self._sketch.sum_pool(
                    node.name, x, _square(module, "kernel_size"), end=self._before_last(node)
                )
            case nn.AdaptiveAvgPool2d() if module.output_size in (1, (1, 1)):
                side = self._sketch.value(x).shape[-1]
                return self._sketch.sum_pool(node.name, x, side, end=self._before_last(node))
            case _ if isinstance(module, PASSED):
                return x
            case _:
                raise ModelError(
                    f"{name} is a {type(module).__name__}, which is not understood: use {PASSED}"
                )

    def _before_last(self, node: fx.Node) -> bool:
        """Whether the last layer reads this node, perhaps flattened."""
        return any(
            user in self._ends[1:] or (self._passes(user) and self._before_last(user)) for user in node.users
        )

    def _passes(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return isinstance(self._module(node), PASSED)
        return node.op != "output" and self._kind(node) == "pass"


def _square(module: nn.Module, what: str) -> int:
    value = getattr(module, what)
    sides = set(value) if isinstance(value, tuple) else {value}
    side = sides.pop()
    if sides or not isinstance(side, int):
        raise ModelError(f"{type(module).__name__} has {what} {value}: only square windows are understood")
    return side
