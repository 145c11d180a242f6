"""Collectives of a process group of torch.distributed, and sums and means in rank order."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.groups.base import SMALL_BYTES, Done, Group, Pending, all_gather_bytes, all_to_all_bytes
from thinwire.tensors import Scratch

# Newer torch warns of the old name, older torch lacks the new one.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Collectives(Group):
    """Acts over the process group that `_made` is, once it is made; `ranks` are the numbers users know."""

    def __init__(self, rank: int, ranks: Sequence[int]) -> None:
        self.rank, self.size, self._ranks = rank, len(ranks), list(ranks)
        self._made: dist.ProcessGroup | None = None

    @property
    def _group(self) -> dist.ProcessGroup:
        if self._made is None:
            raise RuntimeError("this group was closed, or not connected yet")
        return self._made

    def global_rank(self, rank: int) -> int:
        return self._ranks[rank]

    def all_reduce(self, tensor: Tensor) -> Pending:
        return dist.all_reduce(tensor, group=self._group, async_op=True) or Done()

    def all_reduce_max(self, words: Tensor) -> Pending:
        if words.nbytes > SMALL_BYTES:
            maximum = dist.ReduceOp.MAX
            return dist.all_reduce(words, op=maximum, group=self._group, async_op=True) or Done()
        received = torch.empty(self.size, words.numel(), dtype=words.dtype, device=words.device)
        sent = self.all_to_all(words.expand(self.size, -1).contiguous(), received)
        return _Then(sent, lambda: torch.amax(received, dim=0, out=words))

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return dist.all_to_all_single(receive, send, group=self._group, async_op=True) or Done()

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        if send.nbytes <= SMALL_BYTES:
            return self.all_to_all(send.expand(self.size, -1).contiguous(), receive)
        return _all_gather(receive.view(-1), send, group=self._group, async_op=True) or Done()

    def broadcast(self, tensor: Tensor) -> Pending:
        return dist.broadcast(tensor, src=self._ranks[0], group=self._group, async_op=True) or Done()


class _Then:
    """An act with a last local step."""

    def __init__(self, act: Pending, finish: Callable[[], object]) -> None:
        self._act, self._finish = act, finish

    def wait(self) -> None:
        self._act.wait()
        self._finish()


def sum_in_order(group: Group, values: Tensor) -> None:
    """Adds float32 numbers over all ranks, in place.

    1. every rank gets the share that it owns of everybody's numbers (all-to-all), padded with zeros
    2. it adds them in rank order, 0 to N - 1
    3. everybody gets all sums (all-gather)

    Who owns a number depends on where it lies, but not in which order it is added: a run that is resumed with
    other buckets ends with the same bits. The traffic is that of a ring all-reduce.
    """
    if group.size == 1:
        return
    shares = values.new_zeros(group.size, _share(values.numel(), group.size))
    shares.view(-1)[: values.numel()] = values
    received = torch.empty_like(shares)
    group.all_to_all(shares.view(torch.uint8), received.view(torch.uint8)).wait()
    total = received[0]
    for row in received[1:]:
        total += row
    group.all_gather(total.view(torch.uint8), shares.view(torch.uint8)).wait()
    values.copy_(shares.view(-1)[: values.numel()])


def ordered_bytes(numel: int, size: int) -> int:
    """Sent by one rank to add up `numel` float32 numbers."""
    share = 4 * _share(numel, size)
    return all_to_all_bytes(size * share, size) + all_gather_bytes(share, size)


def mean_in_order(group: Group, values: Tensor, scratch: Scratch) -> None:
    """The mean over all ranks, in place, added as `sum_in_order` does and rounded once: halves in float32."""
    share = _share(values.numel(), group.size)
    even = share * group.size == values.numel()
    shares = values if even else _like(values, share * group.size, "shares", scratch)
    if not even:
        shares[: values.numel()] = values
        shares[values.numel() :] = 0
    rows, received = shares.view(group.size, -1), _like(values, share * group.size, "received", scratch)
    group.all_to_all(_bytes(rows), _bytes(received.view(group.size, -1))).wait()
    wide = values.dtype if values.dtype == torch.float64 else torch.float32
    first, *others = received.view(group.size, -1)
    total = first.to(wide)
    for row in others:
        total += row
    mean = total.div_(group.size).to(values.dtype)
    group.all_gather(_bytes(mean), _bytes(rows)).wait()
    if not even:
        values.copy_(shares[: values.numel()])


def mean_bytes(numel: int, itemsize: int, size: int) -> int:
    """Sent by one rank for the mean of `numel` numbers."""
    share = itemsize * _share(numel, size)
    return all_to_all_bytes(size * share, size) + all_gather_bytes(share, size)


def _like(values: Tensor, numel: int, name: str, scratch: Scratch) -> Tensor:
    return scratch.take(f"{name} of the node", numel * values.itemsize).view(values.dtype)


def _bytes(tensor: Tensor) -> Tensor:
    return tensor.view(torch.uint8)


def _share(numel: int, size: int) -> int:
    return -(-numel // size)
