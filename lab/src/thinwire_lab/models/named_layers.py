"""Layers in a row, each with a name of its own."""

from __future__ import annotations

from collections import OrderedDict

from torch import nn


def named(**layers: nn.Module) -> nn.Sequential:
    """Layers in a row, each with a name: rules like {"fc*": "terngrad"} and reports speak of them."""
    return nn.Sequential(OrderedDict(layers))
