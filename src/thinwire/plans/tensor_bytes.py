"""Bytes by tensor: how the exact bytes of a bucket's lanes are shared out among its tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thinwire.plans.lane import Lane, agree_bytes, step_bytes


def tensor_bytes(lanes: Sequence[Lane]) -> dict[str, float]:
    """What each tensor of a bucket makes one rank send in a step; together it is `step_bytes(lanes)`.

    A lane's bytes are shared out in proportion to what each of its tensors would send alone: so tensors share
    what is padding, and a matrix sent as two thin ones counts by its sides.
    """
    shares: dict[str, float] = {}
    numbers = [lane.bound.packer.max_words + lane.bound.num_summands for lane in lanes]
    for lane, own in zip(lanes, numbers, strict=True):
        nbytes = lane.sent_bytes + (agree_bytes(lanes) * own / sum(numbers) if own else 0.0)
        weights = [step_bytes([lane.alone(spec)]) for spec in lane.layout.specs]
        total = sum(weights) or 1
        shares |= {
            spec.name: nbytes * weight / total
            for spec, weight in zip(lane.layout.specs, weights, strict=True)
        }
    return shares


def whole(shares: Mapping[str, float]) -> dict[str, int]:
    """Whole numbers that are together what the shares are together, rounded.

    >>> whole({"a": 1.4, "b": 1.4, "c": 1.4})
    {'a': 1, 'b': 2, 'c': 1}
    """
    rounded, before, total = {}, 0, 0.0
    for name, share in shares.items():
        total += share
        rounded[name] = round(total) - before
        before = round(total)
    return rounded
