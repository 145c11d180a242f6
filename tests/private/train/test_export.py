"""The exported integers are torch's fake-quantized numbers, on 1,000 pictures and on every kind of node."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch.nn import functional

from thinwire_lab.private.study import load_pictures
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.oracle import run, trace
from thinwire_private.net.widths import Bits, read_bits
from thinwire_private.net.zoo import Sketch, build
from thinwire_private.train.fit import TrainingSchedule, fit
from thinwire_private.train.qnet import QNet
from thinwire_private.train.run import export


def blocks(bits: Bits) -> Graph:
    """Digits through residual sums of both kinds, a max pool and an average pool."""
    net = Sketch("blocks", (1, 8, 8), 5, bits)
    x, shortcut = net.residual("relu1", net.conv("stem", "input", 4, end=True))
    x, shortcut = net.residual("relu2", net.add("add1", net.conv("conv1", x, 4), shortcut))
    y = net.conv("conv2", x, 8, stride=2)
    x = net.relu("relu3", net.add("add2", y, net.conv("short", x, 8, 1, 2)))
    x = net.relu("relu4", net.max_pool("max", net.conv("conv3", x, 8), 2, 2))
    return net.finish(net.linear("fc", net.sum_pool("avg", x, 2, end=True), 10))


@pytest.fixture(scope="module")
def pictures() -> torch.Tensor:
    return load_pictures("digits").x


@pytest.mark.parametrize("bits", ["W8A8", "W4A6", "W2A3R5"])
def test_oracle_equals_torch_on_a_thousand_pictures(bits: str, pictures: torch.Tensor) -> None:
    """After a few steps of training, with live norms, so that nothing is at its initial value."""
    torch.manual_seed(0)
    net = QNet(blocks(read_bits(bits)))
    data = load_pictures("digits")
    fit(net, data, TrainingSchedule(0.5, 0.1, 64), 0)
    net.quantize(pictures[:256])
    fit(net, data, TrainingSchedule(0.5, 2e-3, 64), 0)
    graph = export(net)
    x = pictures[:1000]
    with torch.no_grad():
        logits = net.double().eval()(x).numpy() * 2.0**graph.output.exponent
    np.testing.assert_array_equal(run(graph, x.numpy()), logits)
    tight = export(net.float(), "weights")
    np.testing.assert_array_equal(run(tight, x.numpy()), logits)
    assert sum(layer.acc_bits for layer in tight.layers) < sum(layer.acc_bits for layer in graph.layers)


def test_every_node_equals_its_twin_in_torch(pictures: torch.Tensor) -> None:
    """Also inside the network, not only at its end."""
    torch.manual_seed(1)
    net = QNet(blocks(read_bits("W3A4R6"))).double()
    net.quantize(pictures[:256])
    graph = export(net)
    found = trace(graph, pictures[:20].numpy())
    with torch.no_grad():
        for name, fixed in net.eval().trace(pictures[:20]).items():
            np.testing.assert_array_equal(found[name], fixed.real.numpy() * 2.0**fixed.exponent, name)


def test_folding_a_norm_changes_nothing(pictures: torch.Tensor) -> None:
    torch.manual_seed(2)
    net = QNet(build("digits", Bits())).double()
    fit(net, load_pictures("digits"), TrainingSchedule(0.2, 0.1, 64), 0)
    net.eval()
    with torch.no_grad():
        before = net(pictures[:50])
        for node in net.graph.layers:
            net.layer(node.name).fold()
        torch.testing.assert_close(net(pictures[:50]), before)


def test_a_float_network_is_not_exported() -> None:
    with pytest.raises(ModelError, match="quantize it before"):
        export(QNet(build("digits", Bits())))


def test_other_networks_widths_are_refused(pictures: torch.Tensor) -> None:
    with pytest.raises(ModelError, match="other nodes"):
        QNet(build("digits", Bits())).widths(blocks(Bits()), pictures[:8])


def test_float32_training_sees_the_same_numbers(pictures: torch.Tensor) -> None:
    """Single precision holds these sums too, so what is trained is what is exported."""
    torch.manual_seed(3)
    net = QNet(build("digits", read_bits("W4A6")))
    net.quantize(pictures[:256])
    graph = export(net)
    with torch.no_grad():
        logits = net.eval()(pictures[:100]).double().numpy() * 2.0**graph.output.exponent
        loss = functional.cross_entropy(net(pictures[:100]), load_pictures("digits").y[:100])
    np.testing.assert_array_equal(run(graph, pictures[:100].numpy()), logits)
    assert torch.isfinite(loss)
