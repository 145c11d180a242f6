"""A probe: what a codec makes of a snapshot, and how many bits it plans to send for it."""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.groups.thread import ThreadGroup
from thinwire.plans.model import Model
from thinwire.plans.plan import Plan, dry_context
from thinwire.plans.policy import Policy
from thinwire.tensors.layout import Layout
from thinwire_lab.study.snapshot import Snapshot

NO_MEMORY = "none"  # one step, one gradient: nothing was held back before
CPU = torch.device("cpu")


def plan_for(codec: str, layout: Layout) -> Plan:
    """The codec for all tensors; those that it refuses stay dense, and count with all their bits."""
    return Plan.of(Policy.of(codec, keep_dense=()), Model(layout.specs), 1, NO_MEMORY)


def planned_bits(codec: str, layout: Layout, step: int = 0) -> float:
    """Bits per element in a worker's payload, places and scales included; a basis sent once is not."""
    lanes = plan_for(codec, layout).lanes(layout, dry_context(1), step)
    packers = [part.packer for lane in lanes for part in lane.parts]
    payload = sum(packer.num_granules * packer.granule_bytes for packer in packers)
    scales = 4 * sum(lane.bound.packer.max_words for lane in lanes)
    return 8 * (payload + scales) / layout.numel


def passed_through(codec: str, snapshot: Snapshot, warm_up: int = 0, seed: int = 0) -> Tensor:
    """What arrives of a gradient: the engine on a world of one, without a memory.

    1. the engine sees the last `warm_up` gradients before the snapshot, as a codec that learns needs them
    2. then the snapshot's own: that is returned
    """
    [group] = ThreadGroup.make(1)
    engine = Engine(plan_for(codec, snapshot.layout), group, CPU, seed, error_every=0)
    earlier = snapshot.before[len(snapshot.before) - warm_up :]
    for gradient in (*earlier, snapshot.gradient):
        buffer = gradient.clone()
        engine.exchange(Bucket(buffer, snapshot.layout))
        engine.end_step()
    return buffer
