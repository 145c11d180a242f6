"""Sums in rank order: the same bits wherever in a message a number lies, which a ring does not give."""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.groups.base import Group, all_gather_bytes, all_to_all_bytes


def sum_in_order(group: Group, numbers: Tensor) -> None:
    """Adds float32 numbers over all ranks, in place.

    1. every rank gets the share that it owns of everybody's numbers (all-to-all), padded with zeros
    2. it adds them in rank order, 0 to N - 1
    3. everybody gets all sums (all-gather)

    Who owns a number depends on where it lies, but not in which order it is added: a run that is resumed with
    other buckets ends with the same bits. The traffic is that of a ring all-reduce.
    """
    if group.size == 1:
        return
    shares = numbers.new_zeros(group.size, _share(numbers.numel(), group.size))
    shares.view(-1)[: numbers.numel()] = numbers
    received = torch.empty_like(shares)
    group.all_to_all(shares.view(torch.uint8), received.view(torch.uint8)).wait()
    total = received[0]
    for row in received[1:]:
        total += row
    group.all_gather(total.view(torch.uint8), shares.view(torch.uint8)).wait()
    numbers.copy_(shares.view(-1)[: numbers.numel()])


def ordered_bytes(numel: int, size: int) -> int:
    """Sent by one rank to add up `numel` float32 numbers."""
    share = 4 * _share(numel, size)
    return all_to_all_bytes(size * share, size) + all_gather_bytes(share, size)


def _share(numel: int, size: int) -> int:
    return -(-numel // size)
