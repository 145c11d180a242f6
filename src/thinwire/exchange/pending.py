"""What error feedback holds, as the gradients that it stands for: for codecs and routes that follow."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from thinwire.codecs.coder import Context
from thinwire.codecs.stage import Learned
from thinwire.errors import PlanError
from thinwire.feedback.base import ErrorFeedback
from thinwire.feedback.residual import OWNER
from thinwire.plans.lane import Lane
from thinwire.plans.plan import Plan
from thinwire.tensors import Layout


def pending_gradients(
    plan: Plan, context: Context, feedbacks: Mapping[str, ErrorFeedback], step: int, learned: Learned
) -> dict[str, Tensor]:
    """Of every tensor of which something is held: the gradient it stands for, whatever its memory sees."""
    held = [entry for entry in plan.entries if feedbacks[entry.feedback].buffers.committed]
    for entry in held:
        if not feedbacks[entry.feedback].adds:
            raise PlanError(
                f'what memory "{entry.feedback}" holds cannot be sent by another codec: '
                "save a state and begin a new run instead"
            )
    layout = Layout.packed(entry.spec for entry in held)
    found: dict[str, Tensor] = {}
    for lane in plan.lanes(layout, context, step, learned):
        x = gradients_held(lane, feedbacks[lane.feedback], layout.numel)
        if OWNER in feedbacks:  # of the mean: as one of N gradients it counts N times
            x.add_(gradients_held(lane, feedbacks[OWNER], layout.numel), alpha=plan.world)
        found |= {piece.name: x[piece.where].clone() for piece in lane.layout.pieces()}
    return found


def gradients_held(lane: Lane, feedback: ErrorFeedback, numel: int) -> Tensor:
    """A memory behind fixed stages holds numbers: these are undone."""
    bound, x = lane.bound, torch.zeros(numel, device=lane.context.device)
    if not bound.fixed or not bound.stages:
        feedback.before(x, lane.layout.pieces(), 1.0)
        return x
    values = torch.zeros(bound.inner.numel, device=x.device)
    feedback.before(values, bound.inner.pieces(), 1.0)
    bound.begin(1.0, measured=False)
    bound.finish(values, x)
    return x
