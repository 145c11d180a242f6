"""The optimizer of a recipe."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn

from thinwire import Compressor
from thinwire_lab.run.recipe import Recipe

ADAMS: Mapping[str, Callable[..., torch.optim.Optimizer]] = MappingProxyType(
    {"adam": torch.optim.Adam, "adamw": torch.optim.AdamW}
)


def make_optimizer(
    net: nn.Module, recipe: Recipe, compressor: Compressor | None = None
) -> torch.optim.Optimizer:
    """SGD leaves momentum to the compressor where its memory applies it (dgc)."""
    groups: Any = list(net.parameters())
    optimizer: torch.optim.Optimizer
    if recipe.optimizer in ADAMS:
        optimizer = ADAMS[recipe.optimizer](groups, recipe.lr, weight_decay=recipe.weight_decay)
    else:
        if compressor is not None:
            groups = compressor.param_groups(groups, momentum=recipe.momentum)
        optimizer = torch.optim.SGD(groups, recipe.lr, recipe.momentum, weight_decay=recipe.weight_decay)
    if compressor is not None:
        compressor.check_optimizer(optimizer)
    return optimizer
