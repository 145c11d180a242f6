"""A user's torch module becomes the same network, or is refused with a sentence."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from thinwire_private.errors import ModelError
from thinwire_private.net.widths import Bits, read_bits
from thinwire_private.train.qnet import QNet
from thinwire_private.train.run import export
from thinwire_private.train.trace import traced


class Residual(nn.Module):
    """A module as users write them."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU())
        self.conv = nn.Conv2d(4, 4, 3, padding=1)
        self.norm = nn.BatchNorm2d(4)
        self.pool = nn.AvgPool2d(2)
        self.drop = nn.Dropout(0.5)
        self.fc = nn.Linear(4 * 4 * 4, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = self.stem(x)
        x = torch.relu(x + self.norm(self.conv(x)))
        y: Tensor = self.fc(self.drop(torch.flatten(self.pool(x), 1)))
        return y


def test_a_module_and_its_graph_compute_the_same() -> None:
    torch.manual_seed(0)
    model = Residual()
    x = torch.randint(0, 17, (20, 1, 8, 8), dtype=torch.uint8)
    model(x.float() / 32)  # moves the norms' statistics
    found = traced(model.eval(), (1, 8, 8), 5)
    net = QNet(found.draw(read_bits("W4A6")))
    found.fill(net)
    torch.testing.assert_close(net.eval()(x), model(x.float() / 32))
    assert [layer.weight_bits for layer in net.graph.layers] == [8, 4, 8]
    assert net.graph.layers[-1].in_bits == 8
    net.quantize(x)
    assert export(net).has_weights


def refused(*layers: nn.Module) -> str:
    with pytest.raises(ModelError) as caught:
        traced(nn.Sequential(*layers), (1, 8, 8), 5).draw(Bits())
    return str(caught.value)


def test_what_cannot_be_run_privately_is_refused() -> None:
    conv = nn.Conv2d(1, 4, 3)
    assert "is a Sigmoid, which is not understood" in refused(conv, nn.Sigmoid())
    assert "grouped or dilated" in refused(nn.Conv2d(1, 4, 3, dilation=2))
    assert "put a requant between" in refused(conv, nn.Flatten(), nn.Linear(144, 10))
    assert "does not follow a convolution" in refused(conv, nn.ReLU(), nn.BatchNorm2d(4))
    assert "only square windows" in refused(nn.Conv2d(1, 4, (3, 1)))
    assert "no Conv2d and no Linear" in refused(nn.ReLU())
