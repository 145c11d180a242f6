"""Sums in rank order: the same bits wherever in a message a number lies, which a ring does not give."""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.groups.base import Group, all_gather_bytes, all_to_all_bytes
from thinwire.tensors.scratch import Scratch


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


def mean_in_order(group: Group, numbers: Tensor, scratch: Scratch) -> None:
    """The mean over all ranks, in place, added as `sum_in_order` does and rounded once: halves in float32."""
    share = _share(numbers.numel(), group.size)
    even = share * group.size == numbers.numel()
    shares = numbers if even else _like(numbers, share * group.size, "shares", scratch)
    if not even:
        shares[: numbers.numel()] = numbers
        shares[numbers.numel() :] = 0
    rows, received = shares.view(group.size, -1), _like(numbers, share * group.size, "received", scratch)
    group.all_to_all(_bytes(rows), _bytes(received.view(group.size, -1))).wait()
    wide = numbers.dtype if numbers.dtype == torch.float64 else torch.float32
    first, *others = received.view(group.size, -1)
    total = first.to(wide)
    for row in others:
        total += row
    mean = total.div_(group.size).to(numbers.dtype)
    group.all_gather(_bytes(mean), _bytes(rows)).wait()
    if not even:
        numbers.copy_(shares[: numbers.numel()])


def mean_bytes(numel: int, itemsize: int, size: int) -> int:
    """Sent by one rank for the mean of `numel` numbers."""
    share = itemsize * _share(numel, size)
    return all_to_all_bytes(size * share, size) + all_gather_bytes(share, size)


def _like(numbers: Tensor, numel: int, name: str, scratch: Scratch) -> Tensor:
    return scratch.take(f"{name} of the node", numel * numbers.itemsize).view(numbers.dtype)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


def _share(numel: int, size: int) -> int:
    return -(-numel // size)
