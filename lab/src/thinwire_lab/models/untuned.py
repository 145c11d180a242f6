"""Nets that no study here was tuned on: an LSTM, a GPT-like with tied weights, and an MLP."""

from __future__ import annotations

from torch import Tensor, nn

from thinwire_lab.models.char_transformer import CharTransformer


class CharLstm(nn.Module):
    """Two layers of 256 cells: 876,929 parameters for 65 characters."""

    def __init__(self, classes: int, width: int = 64, cells: int = 256) -> None:
        super().__init__()
        self.token = nn.Embedding(classes, width)
        self.cells = nn.LSTM(width, cells, num_layers=2, batch_first=True)
        self.read_out = nn.Linear(cells, classes)

    def forward(self, symbols: Tensor) -> Tensor:
        outputs, _ = self.cells(self.token(symbols))
        logits: Tensor = self.read_out(outputs)
        return logits


class TiedGpt(CharTransformer):
    """A GPT-like of 4 blocks whose read-out is its token embedding: 809,856 parameters."""

    def __init__(self, classes: int) -> None:
        super().__init__(classes, width=128, heads=4, depth=4)
        self.read_out = nn.Linear(128, classes, bias=False)
        self.read_out.weight = self.token.weight


def mlp(classes: int) -> nn.Module:
    """784-1024-1024, fully connected: 1,863,690 parameters."""
    return nn.Sequential(
        nn.Flatten(),
        nn.Linear(784, 1024),
        nn.ReLU(),
        nn.Linear(1024, 1024),
        nn.ReLU(),
        nn.Linear(1024, classes),
    )
