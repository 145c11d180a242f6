"""The whole gradient of a step: its buckets wait for the last one where a memory clips by the norm of all."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch

from thinwire.exchange.bucket import Bucket
from thinwire.tensors.layout import Layout


@dataclass(frozen=True)
class HeldBucket:
    """A bucket whose exchange is not queued yet."""

    bucket: Bucket
    job: Callable[[], None]
    finish: Callable[[], None]


class WholeGradient:
    """Buckets of one backward pass, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[Layout, HeldBucket] = {}

    def hold(self, held: HeldBucket) -> None:
        """Of a bucket that comes twice the first was of a backward pass that was broken off."""
        self._held.pop(held.bucket.layout, None)
        self._held[held.bucket.layout] = held

    def release(self) -> list[HeldBucket]:
        """All of them; the next bucket is that of another step."""
        held, self._held = list(self._held.values()), {}
        return held


def norm_of(buckets: Iterable[Bucket]) -> float:
    """||g|| without the loss scale; it does not depend on how g is cut into buckets.

    >>> from thinwire.tensors.spec import Spec
    >>> layout = Layout.packed([Spec("a", (2,))])
    >>> norm_of([Bucket(torch.tensor([6.0, 8.0]), layout, loss_scale=2.0)])
    5.0
    """
    return math.sqrt(
        math.fsum(
            (float(torch.linalg.vector_norm(bucket.buffer[piece], dtype=torch.float64)) / bucket.loss_scale)
            ** 2
            for bucket in buckets
            for piece in bucket.layout.slices
        )
    )
