"""Buckets as DDP makes them: tensors in the order in which their gradients are ready, cut by size."""

from __future__ import annotations

from collections.abc import Iterable

from thinwire.perf.network import Layer

FIRST_MB = 1.0  # DDP's first bucket is small, so that the exchange begins early
BUCKET_MB = 25.0
MIB = 1 << 20

Bucket = tuple[Layer, ...]


def ddp_buckets(layers: Iterable[Layer], bucket_mb: float = BUCKET_MB) -> tuple[Bucket, ...]:
    """From the last layer to the first, as backward goes; a bucket is closed when it has reached its size."""
    buckets: list[Bucket] = []
    waiting: list[Layer] = []
    for layer in reversed(tuple(layers)):
        waiting.append(layer)
        limit = (bucket_mb if buckets else min(FIRST_MB, bucket_mb)) * MIB
        if 4 * sum(other.numel for other in waiting) >= limit:
            buckets.append(tuple(waiting))
            waiting = []
    return (*buckets, tuple(waiting)) if waiting else tuple(buckets)
