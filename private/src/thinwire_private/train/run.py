"""From nothing to a model: floating point, then the integer grid in stages, then a checked export."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, GraphNode, IntArray, Output, Requant, SumPool, Weighted
from thinwire_private.net.oracle import overflows, run
from thinwire_private.net.widths import WORST, Bits, bias_limit, fit_accumulators
from thinwire_private.train.fit import Pictures, TrainingSchedule, accuracy, fit
from thinwire_private.train.qnet import QNet, pool_exponent

Draw = Callable[[Bits], Graph]
Tell = Callable[[str, int, int, float], None]
WARM_BITS = 4  # weights narrower than this start from a network trained at this width
DRAFT = 128  # training pictures from which a draft's steps are set
SAMPLE = 512  # training pictures from which steps are set
CHECKED = 100  # test pictures on which the exported integers are compared with torch's
SINGLE_BITS = 24  # single precision holds every integer of this many bits


@dataclass(frozen=True)
class TrainingPlan:
    """Pictures, and a network for them at any bit widths; `fill` puts a user's own weights in."""

    name: str
    pictures: Pictures
    draw: Callable[[Bits], Graph]
    fill: Callable[[QNet], None] = lambda _: None

    def start(self, bits: Bits, seed: int) -> QNet:
        """The network in floating point; new weights are drawn from the seed."""
        torch.manual_seed(seed)
        net = QNet(self.draw(bits))
        self.fill(net)
        net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
        return net


@dataclass(frozen=True)
class Result:
    """A trained network, its integers, and how well they do on the test set."""

    graph: Graph
    accuracy: float
    float_accuracy: float
    clipped: float
    seconds: float

    def row(self) -> dict[str, Any]:
        """The figures."""
        return {
            "accuracy": round(self.accuracy, 5),
            "float_accuracy": round(self.float_accuracy, 5),
            "clipped": round(self.clipped, 6),
            "seconds": round(self.seconds, 1),
        }


def pretrain(
    plan: TrainingPlan,
    bits: Bits,
    schedule: TrainingSchedule,
    seed: int,
    start: Path | None = None,
    keep: Path | None = None,
    tell: Tell = lambda *_: None,
) -> tuple[QNet, float]:
    """A network in floating point and its accuracy: trained, or read from `start`; kept in `keep`."""
    net = plan.start(bits, seed)
    if start is not None:
        load_weights(net, start)
    else:
        fit(net, plan.pictures, schedule, seed, partial(tell, "float"))
        if keep is not None:
            save_weights(net, keep)
    return net, accuracy(net, plan.pictures)


def stages(bits: Bits, progressive: bool) -> list[Bits]:
    """Widths to train at, one after the other: a warm start from higher bits where the last ones are low."""
    if not progressive or min([bits.weight, *bits.weights.values()]) >= WARM_BITS:
        return [bits]
    raised = {name: max(WARM_BITS, width) for name, width in bits.weights.items()}
    return [replace(bits, weight=max(WARM_BITS, bits.weight), weights=raised), bits]


def drafted(net: QNet, draw: Draw, pictures: Pictures, bits: Bits) -> Graph:
    """The graph that a floating-point network would have at these widths without further training."""
    draft = copy.deepcopy(net)
    draft.widths(draw(bits), pictures.x[:DRAFT])
    return export(draft)


def tune(
    net: QNet,
    draw: Draw,
    bits: Bits,
    pictures: Pictures,
    schedule: TrainingSchedule,
    seed: int,
    *,
    progressive: bool = True,
    acc_rule: str = WORST,
    float_accuracy: float = float("nan"),
    tell: Tell = lambda *_: None,
) -> Result:
    """Quantization-aware training of a floating-point network, which is changed, and its export.

    1. go to the grid of each stage and train there, sharing the epochs evenly;  2. export;  3. compare the
    integers with torch in double precision;  4. score the integers on the whole test set.
    """
    begun = time.perf_counter()
    plan = stages(bits, progressive)
    sample = pictures.x[:SAMPLE]
    for index, widths in enumerate(plan):
        net.widths(draw(widths), sample)
        part = replace(schedule, epochs=schedule.epochs / len(plan))
        told = partial(tell, f"grid {index + 1}/{len(plan)}")
        fit(net, pictures, part, seed + index, told)
    graph = export(net, acc_rule)
    check_export(net, graph, pictures)
    exact = all(node.value.bits <= SINGLE_BITS for node in graph)
    right = accuracy(net if exact else net.double(), pictures)
    net.float()
    counted = overflows(graph, pictures.test_x[:CHECKED].numpy())
    clipped = sum(each.count for each in counted) / max(1, sum(each.of for each in counted))
    return Result(graph, right, float_accuracy, clipped, time.perf_counter() - begun)


@torch.no_grad()
def check_export(net: QNet, graph: Graph, pictures: Pictures) -> None:
    """Assert that oracle and torch agree on every logit: a wrong export must never reach a file."""
    x = pictures.test_x[:CHECKED]
    logits = net.double().eval()(x).numpy() * 2.0**graph.output.exponent
    net.float().train()
    np.testing.assert_array_equal(run(graph, x.numpy()), logits)


@torch.no_grad()
def export(net: QNet, acc_rule: str = WORST) -> Graph:
    """The graph with the net's integers: weights, biases, and shifts from the exponents."""
    if not net.quantized:
        raise ModelError("the network still has float activations: quantize it before it is exported")
    exponents = {net.graph.input.name: net.graph.input.exponent}
    nodes: list[GraphNode] = []
    for node in net.graph:
        given = [exponents[source] for source in node.sources]
        made, exponent = _node(net, node, given) if given else (node, net.graph.input.exponent)
        exponents[node.name] = exponent
        nodes.append(made)
    return replace(net.graph, nodes=fit_accumulators(nodes, acc_rule), acc_rule=acc_rule)


def _node(net: QNet, node: GraphNode, given: list[int]) -> tuple[GraphNode, int]:
    match node:
        case Weighted():
            layer = net.layer(node.name)
            exponent = layer.quantizer.exponent()
            weight = _integers(layer.weight, exponent, *layer.quantizer.range(node.weight_bits))
            limit = bias_limit(node)
            bias = _integers(layer.bias, given[0] + exponent, -limit, limit)
            return replace(node, weight=weight, bias=bias), given[0] + exponent
        case Requant():
            exponent = net.step(node.name).exponent(given[0])
            return replace(node, shift=given[0] - exponent), exponent
        case Add():
            exponent = max(given)
            return replace(node, shifts=(exponent - given[0], exponent - given[1])), exponent
        case SumPool():
            return node, given[0] + pool_exponent(node)
        case Output():
            return replace(node, exponent=given[0]), given[0]
        case _:
            return node, given[0]


def _integers(values: Tensor, exponent: int, low: int, high: int) -> IntArray:
    rounded = (values * 2.0**exponent + 0.5).floor().clamp(low, high)
    return rounded.double().numpy().astype(np.int64)


def save_weights(net: QNet, path: Path) -> None:
    """Write the weights of a floating-point network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), path)


def load_weights(net: QNet, path: Path) -> None:
    """Read weights that `save_weights` wrote for the same network; nothing in the file is executed."""
    try:
        net.load_state_dict(torch.load(path, weights_only=True))
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist: name a file that --keep-float wrote") from error
    except Exception as error:  # torch raises many kinds for damaged files and other networks
        raise ModelError(
            f"{path} does not fit network {net.graph.name!r} ({type(error).__name__}): train it anew"
        ) from error
