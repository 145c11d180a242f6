"""The state of a sharded compressor: what is held of whole tensors, cut anew for another number of ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from thinwire.exchange.weights import UnitWeights


def saved_weights(weights: Mapping[str, UnitWeights], gathered: bool) -> dict[str, Tensor]:
    """By unit, what all ranks hold of its weights: this rank's row, or all rows."""
    bases = {name: unit.base for name, unit in weights.items()}
    return {
        name: base.clone() if gathered else base[weights[name].context.rank].clone()
        for name, base in bases.items()
        if base is not None
    }


def take_weights(
    weights: Mapping[str, UnitWeights], saved: Mapping[str, Tensor], world: int | None, now: int
) -> None:
    """Goes on from the saved bases; with another number of ranks weights travel once as they are."""
    for name, unit in weights.items():
        unit.base = unit.pending = None
        if name in saved and world == now:
            base = saved[name]
            unit.pending = (base[unit.context.rank] if base.dim() > 1 else base).to(unit.context.device)


def recut(state: Mapping[str, Any], numels: Mapping[str, int]) -> None:
    """What is held back of a tensor, in its padded size of now: zeros are added to its end, or taken off."""
    for held in (*state.get("ranks", ()), state.get("shared", {}), state.get("feedback", {})):
        for pieces in held.values():
            for tensors in pieces.values():
                for name, tensor in tensors.items():
                    if name in numels and tensor.numel() != numels[name]:
                        tensors[name] = _resized(tensor, numels[name])


def _resized(tensor: Tensor, numel: int) -> Tensor:
    kept = tensor[:numel]
    return torch.cat([kept, kept.new_zeros(numel - kept.numel())])
