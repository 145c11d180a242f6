"""Bytes inside a node: what its raw means and their way back make a worker send."""

from __future__ import annotations

from thinwire.groups.base import broadcast_bytes
from thinwire.groups.ordered import mean_bytes
from thinwire.tensors.layout import Layout

STATUS_BYTES = 24  # what a leader tells at the end of a step of which something is remembered


def node_bytes(bucket: Layout, place: int, per_node: int) -> int:
    """Sent for a bucket by the worker at a place in its node (0 leads), exactly."""
    if per_node == 1 or not bucket.specs:
        return 0
    itemsize = bucket.specs[0].dtype.itemsize
    returned = broadcast_bytes(bucket.numel * itemsize, place, per_node)
    return mean_bytes(bucket.numel, itemsize, per_node) + returned
