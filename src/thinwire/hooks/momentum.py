"""Who applies momentum: the memory of a compressor, or the optimizer, but never both."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterable, Mapping
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from thinwire.errors import PlanError
from thinwire.memories.momentum import MomentumOptions
from thinwire.memories.table import memory_name, memory_options
from thinwire.plans.plan import Plan

WAY_OUT = (
    "use torch.optim.SGD(compressor.param_groups(model.parameters(), momentum=0.9), ...), which gives "
    'momentum to the other tensors only, or memory="residual"'
)


def corrected(plan: Plan) -> dict[str, MomentumOptions]:
    """The tensors whose memory applies momentum, and how it does."""
    return {
        entry.spec.name: memory_options(entry.memory)
        for entry in plan.entries
        if memory_name(entry.memory) == "momentum"
    }


def refuse_second_momentum(optimizer: Optimizer, names: Mapping[int, str], applied: Collection[str]) -> None:
    """Raises if the optimizer would apply momentum to a tensor whose memory applies it already."""
    for group in optimizer.param_groups:
        what = _momentum(group)
        twice = [names[id(p)] for p in group["params"] if names.get(id(p)) in applied]
        if what and twice:
            more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            raise PlanError(
                f'momentum would be applied twice to {twice[0]}{more}: memory "momentum" applies it before '
                f"selecting, and {type(optimizer).__name__} has {what}: {WAY_OUT}"
            )


def split_groups(
    parameters: Iterable[Tensor], names: Mapping[int, str], applied: Collection[str], momentum: float
) -> list[dict[str, Any]]:
    """Parameter groups for SGD: momentum for all tensors but those whose memory applies it."""
    everything = list(parameters)
    here = [p for p in everything if names.get(id(p)) in applied]
    elsewhere = [p for p in everything if names.get(id(p)) not in applied]
    groups = [{"params": elsewhere, "momentum": momentum}, {"params": here, "momentum": 0.0}]
    return [group for group in groups if group["params"]]


def warn_unchecked() -> None:
    warnings.warn(
        "the optimizer must not apply momentum to tensors whose memory does (dgc), and nobody looked whether "
        "it does: call compressor.check_optimizer(optimizer) once, before training",
        stacklevel=2,
    )


def _momentum(group: Mapping[str, Any]) -> str | None:
    """The option by which an optimizer averages gradients over steps, if it does."""
    if "betas" in group:
        return f"betas={group['betas']}"
    return f"momentum={group['momentum']:g}" if group.get("momentum") else None
