"""What the memories of a plan hold, as gradients: to be sent by another plan."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Context
from thinwire.codecs.stages.base import Learned
from thinwire.errors import PlanError
from thinwire.memories.base import Memory
from thinwire.plans.lane import Lane
from thinwire.plans.plan import Plan
from thinwire.tensors.layout import Layout


def drained(
    plan: Plan, context: Context, memories: Mapping[str, Memory], step: int, learned: Learned
) -> dict[str, Tensor]:
    """Of every tensor of which something is held: the gradient it stands for, whatever its memory sees."""
    held = [entry for entry in plan.entries if memories[entry.memory].pages.kept]
    for entry in held:
        if not memories[entry.memory].adds:
            raise PlanError(
                f'what memory "{entry.memory}" holds cannot be sent by another codec: '
                "save a state and begin a new run instead"
            )
    layout = Layout.packed(entry.spec for entry in held)
    found: dict[str, Tensor] = {}
    for lane in plan.lanes(layout, context, step, learned):
        x = _gradients(lane, memories[lane.memory], layout.numel)
        found |= {piece.name: x[piece.where].clone() for piece in lane.layout.pieces()}
    return found


def _gradients(lane: Lane, memory: Memory, numel: int) -> Tensor:
    """A memory behind fixed stages holds numbers: these are undone."""
    bound, x = lane.bound, torch.zeros(numel, device=lane.context.device)
    if not bound.fixed or not bound.stages:
        memory.before(x, lane.layout.pieces(), 1.0)
        return x
    numbers = torch.zeros(bound.inner.numel, device=x.device)
    memory.before(numbers, bound.inner.pieces(), 1.0)
    bound.begin(1.0, measured=False)
    bound.finish(numbers, x)
    return x
