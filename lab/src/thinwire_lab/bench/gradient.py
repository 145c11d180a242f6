"""The gradient that benches exchange: one tensor, in a shape that the codec at hand compresses."""

from __future__ import annotations

import math

import thinwire as tw
from thinwire.errors import LabError
from thinwire.plans.model import Model
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Policy
from thinwire.tensors.spec import Spec


def gradient_spec(codec: str, numel: int) -> Spec:
    """A vector, or the squarest matrix of that many elements if the codec leaves vectors dense.

    >>> gradient_spec("powersgd:4", 6_553_600).shape
    (2560, 2560)
    """
    rows = next(rows for rows in range(math.isqrt(numel), 0, -1) if numel % rows == 0)
    specs = [Spec("x", (numel,)), Spec("x", (rows, numel // rows))]
    refusals = [tw.parse(codec).refuses(spec) for spec in specs]
    for spec, refusal in zip(specs, refusals, strict=True):
        if refusal is None:
            return spec
    raise LabError(f'"{codec}" leaves {numel:,} elements dense ({refusals[0]}): choose another --numel')


def bench_plan(codec: str, numel: int, world: int) -> Plan:
    return Plan.of(Policy.of(codec, keep_dense=()), Model((gradient_spec(codec, numel),)), world)
