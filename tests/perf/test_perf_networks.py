"""Layer tables: published parameter counts, DDP's own buckets, and the user's modules."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from thinwire.errors import LabError
from thinwire.perf.network import (
    DEVICES,
    EMBEDDING,
    LAST,
    Layer,
    Network,
    compute_of,
    ddp_buckets,
    device_named,
)
from thinwire.perf.networks import NETWORKS, network_named, read_module

COUNTS = {
    "alexnet": 60_965_224,
    "vgg-a": 132_863_336,
    "googlenet": 6_998_552,
    "resnet50": 25_557_032,
    "bert-large": 336_226_108,
    "gpt2-medium": 354_823_168,
    "llama-7b": 6_738_415_616,
}
GMACS = {
    "alexnet": 0.72,
    "vgg-a": 7.6,
    "googlenet": 1.58,
    "resnet50": 4.09,
}  # a picture, forward; as published


def test_every_table_is_counted() -> None:
    assert COUNTS.keys() == NETWORKS.keys()


@pytest.mark.parametrize("name", NETWORKS)
def test_parameters(name: str) -> None:
    network = network_named(name)
    assert network.numel == COUNTS[name]
    names = [layer.name for layer in network.layers]
    assert len(names) == len(set(names))
    assert name == "gpt2-medium" or any(layer.kind == LAST for layer in network.layers)


@pytest.mark.parametrize("name", GMACS)
def test_multiplications(name: str) -> None:
    assert network_named(name).macs / 1e9 == pytest.approx(GMACS[name], rel=0.01)


@pytest.mark.parametrize("name", ["alexnet", "resnet50", "bert-large"])
def test_buckets_are_those_of_ddp(name: str) -> None:
    layers = network_named(name).layers[::-1]
    tensors = [torch.empty(layer.shape, device="meta") for layer in layers]
    limits = [dist._DEFAULT_FIRST_BUCKET_BYTES, 25 << 20]
    indices, _ = dist._compute_bucket_assignment_by_size(tensors, limits)
    assert [[layers[i].name for i in bucket] for bucket in indices] == [
        [layer.name for layer in bucket] for bucket in ddp_buckets(layers[::-1])
    ]


def test_buckets_are_ready_in_order_and_the_last_at_the_end() -> None:
    network = network_named("resnet50")
    compute = compute_of(network, ddp_buckets(network.layers), device_named("v100"))
    assert list(compute.ready_s) == sorted(compute.ready_s)
    assert compute.ready_s[-1] == pytest.approx(compute.backward_s)
    assert compute.backward_s == pytest.approx(2 * compute.forward_s)
    assert "assumed" in compute.source


def test_fully_connected_layers_are_ready_early() -> None:
    """AlexNet: 96 % of the parameters, 8 % of the multiplications."""
    network = network_named("alexnet")
    buckets = ddp_buckets(network.layers)
    compute = compute_of(network, buckets, device_named("gtx1080"))
    fc6 = next(k for k, bucket in enumerate(buckets) if any(x.name == "fc6.weight" for x in bucket))
    assert compute.ready_s[fc6] < 0.1 * compute.backward_s
    assert compute.examples_per_s == pytest.approx(394)
    assert "Figure 5" in compute.source


def test_rates_and_devices_that_are_none() -> None:
    network = network_named("resnet50")
    buckets = ddp_buckets(network.layers)
    with pytest.raises(LabError, match="must be above 0"):
        compute_of(network, buckets, device_named("v100"), 0.0)
    with pytest.raises(LabError, match='no device "v10": did you mean "v100"'):
        device_named("v10")
    with pytest.raises(LabError, match="at least one example"):
        network.with_batch(0)
    with pytest.raises(LabError, match="no tensors"):
        Network("empty", ())
    with pytest.raises(LabError, match="give --examples-per-s"):
        compute_of(Network("bare", (Layer("w", (8,)),)), ((Layer("w", (8,)),),), device_named("v100"))


def test_a_crowded_device_is_slower() -> None:
    whole, half = DEVICES["cpu"], DEVICES["cpu"].crowded(0.5)
    assert half.copy_s == 2 * whole.copy_s
    assert half.product_flops == whole.product_flops / 2
    assert (half.contends, half.wire_contends) == (1.0, 1.0)
    assert whole.crowded(1) == whole
    with pytest.raises(LabError, match="share=0"):
        whole.crowded(0)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.fc = nn.Linear(2 * 4 * 4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.conv(self.words(x).unsqueeze(1))
        out: torch.Tensor = self.fc(y.flatten(1))
        return out


def test_a_module_is_read_with_its_uses() -> None:
    network = read_module(Net(), torch.zeros(3, 4, dtype=torch.long), "net")
    found = {layer.name: layer for layer in network.layers}
    assert found["conv.weight"].uses == 16
    assert found["fc.weight"].uses == 1
    assert found["words.weight"].kind == EMBEDDING
    assert found["words.weight"].uses == 0
    assert found["fc.weight"].kind == LAST
    assert network.numel == sum(p.numel() for p in Net().parameters())


def test_a_module_without_an_example_counts_each_weight_once() -> None:
    network = read_module(Net(), None, "net")
    assert {layer.uses for layer in network.layers if len(layer.shape) > 1} == {1}


def test_an_example_that_does_not_fit() -> None:
    with pytest.raises(LabError, match="does not fit the module"):
        read_module(Net(), torch.zeros(3, 7), "net")


OWN = """
import torch
from torch import nn

def net():
    return nn.Linear(8, 4), torch.zeros(2, 8)

def table():
    from thinwire.perf.network import Layer, Network
    return Network("mine", (Layer("w", (3, 5), 1),))

def number():
    return 7

def broken():
    raise KeyError("no")
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own_nets_of_a_test.py").write_text(OWN)
    (tmp_path / "own_broken_of_a_test.py").write_text("1 / 0")
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("own")
def test_networks_of_the_user() -> None:
    assert network_named("own_nets_of_a_test:net").numel == 36
    assert network_named("own_nets_of_a_test:table").numel == 15


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("resnet51", 'there is no network "resnet51": did you mean "resnet50"'),
        ("no_such_module:net", "no_such_module cannot be imported .ModuleNotFoundError"),
        ("own_broken_of_a_test:net", "cannot be imported .ZeroDivisionError"),
        ("own_nets_of_a_test:nothing", "has no function nothing"),
        ("own_nets_of_a_test:number", "returns int: it must return a torch module"),
        ("own_nets_of_a_test:broken", "fails .KeyError"),
        ("own_nets_of_a_test:", "is no module:function"),
    ],
)
def test_networks_that_are_none(text: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        network_named(text)
