"""What error feedback holds back as gradients, so that another plan or another codec can send it."""

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
    """Of every tensor of which something is held: the gradient it stands for, whatever its feedback sees."""
    held = [entry for entry in plan.entries if feedbacks[entry.feedback].buffers.committed]
    for entry in held:
        if not feedbacks[entry.feedback].adds:
            raise PlanError(
                f'what error feedback "{entry.feedback}" holds cannot be sent by another codec: '
                "save a state and begin a new run instead"
            )
    layout = Layout.packed(entry.spec for entry in held)
    found: dict[str, Tensor] = {}
    for lane in plan.lanes(layout, context, step, learned):
        x = _gradients(lane, feedbacks[lane.feedback], layout.numel)
        if OWNER in feedbacks:  # of the mean: as one of N gradients it counts N times
            x.add_(_gradients(lane, feedbacks[OWNER], layout.numel), alpha=plan.world)
        found |= {piece.name: x[piece.where].clone() for piece in lane.layout.pieces()}
    return found


def released_gradients(plan: Plan, context: Context, owned: ErrorFeedback, step: int) -> dict[str, Tensor]:
    """What owners held of tensors that have no owners under this plan, taken from them.

    Every rank was given all of it when the state was loaded: the mean over the ranks is what the owners held.
    """
    held = owned.buffers.committed
    specs = [e.spec for e in plan.entries if e.spec.name in held and not e.reencodes]
    layout, found = Layout.packed(specs), dict[str, Tensor]()
    for lane in plan.lanes(layout, context, step) if specs else ():
        x = _gradients(lane, owned, layout.numel)
        found |= {piece.name: x[piece.where].clone() for piece in lane.layout.pieces()}
    for name in found:
        del held[name]
    return found


def _gradients(lane: Lane, feedback: ErrorFeedback, numel: int) -> Tensor:
    """Feedback behind fixed stages holds what these made of gradients: they are undone."""
    bound, x = lane.bound, torch.zeros(numel, device=lane.context.device)
    if not bound.fixed or not bound.stages:
        feedback.before(x, lane.layout.pieces(), 1.0)
        return x
    values = torch.zeros(bound.inner.numel, device=x.device)
    feedback.before(values, bound.inner.pieces(), 1.0)
    bound.begin(1.0, measured=False)
    bound.finish(values, x)
    return x
