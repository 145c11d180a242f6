"""Collectives of a process group of torch.distributed: the acts, without how ranks meet and part."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.groups.base import SMALL_BYTES, Done, Group, Pending

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
        return _pending(dist.all_reduce(tensor, group=self._group, async_op=True))

    def all_reduce_max(self, words: Tensor) -> Pending:
        if words.nbytes > SMALL_BYTES:
            maximum = dist.ReduceOp.MAX
            return _pending(dist.all_reduce(words, op=maximum, group=self._group, async_op=True))
        received = torch.empty(self.size, words.numel(), dtype=words.dtype, device=words.device)
        return _Then(self._to_everyone(words, received), lambda: torch.amax(received, dim=0, out=words))

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return _pending(dist.all_to_all_single(receive, send, group=self._group, async_op=True))

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        if send.nbytes <= SMALL_BYTES:
            return self._to_everyone(send, receive)
        return _pending(_all_gather(receive.view(-1), send, group=self._group, async_op=True))

    def broadcast(self, tensor: Tensor) -> Pending:
        return _pending(dist.broadcast(tensor, src=self._ranks[0], group=self._group, async_op=True))

    def _to_everyone(self, send: Tensor, receive: Tensor) -> Pending:
        return self.all_to_all(send.expand(self.size, -1).contiguous(), receive)


class _Then:
    """An act with a last local step."""

    def __init__(self, act: Pending, finish: Callable[[], object]) -> None:
        self._act, self._finish = act, finish

    def wait(self) -> None:
        self._act.wait()
        self._finish()


def _pending(work: dist.Work | None) -> Pending:
    return work if work is not None else Done()
