"""A group over torch.distributed (gloo, NCCL, MPI) with connections of its own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import distributed_c10d

from thinwire.errors import PeerError, PlanError
from thinwire.groups.base import SMALL_BYTES, Done, Group, Note, Pending
from thinwire.groups.witness import Witness

# Newer torch warns of the old name, older torch lacks the new one.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_CONFESSION_SHARE = 0.15  # of the timeout: kept back for finding out who failed
_CONFESSION_MAX_S = 10.0


class TorchGroup(Group):
    """Collectives of thinwire's own process group, so that they cannot mix with those of DDP.

    The group fails after 85 % of the parent's timeout: the rest is for naming the rank at fault. That is
    found out over a second group, the witness.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        parent = process_group if process_group is not None else dist.group.WORLD
        if parent is None:
            raise PlanError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group first"
            )
        timeout_s = _timeout_s(parent)
        confession_s = min(_CONFESSION_MAX_S, _CONFESSION_SHARE * timeout_s)
        self.rank, self.size = parent.rank(), parent.size()
        self._ranks = dist.get_process_group_ranks(parent)
        self._backend = dist.get_backend(parent)
        name = _new_name(parent)
        self._group = _connect(parent, name, self._backend, timeout_s - confession_s)
        self._alarm = _connect(parent, f"{name}/witness", "gloo", timeout_s)
        self._witness = Witness(self._alarm, confession_s)

    def global_rank(self, rank: int) -> int:
        return self._ranks[rank]

    def sum_(self, tensor: Tensor) -> Pending:
        return _pending(dist.all_reduce(tensor, group=self._group, async_op=True))

    def max_(self, words: Tensor) -> Pending:
        if words.nbytes > SMALL_BYTES:
            maximum = dist.ReduceOp.MAX
            return _pending(dist.all_reduce(words, op=maximum, group=self._group, async_op=True))
        received = torch.empty(self.size, words.numel(), dtype=words.dtype, device=words.device)
        return _Then(self._to_everyone(words, received), lambda: torch.amax(received, dim=0, out=words))

    def swap(self, send: Tensor, receive: Tensor) -> Pending:
        return _pending(dist.all_to_all_single(receive, send, group=self._group, async_op=True))

    def gather(self, send: Tensor, receive: Tensor) -> Pending:
        if send.nbytes <= SMALL_BYTES:
            return self._to_everyone(send, receive)
        return _pending(_all_gather(receive.view(-1), send, group=self._group, async_op=True))

    def _to_everyone(self, send: Tensor, receive: Tensor) -> Pending:
        return self.swap(send.expand(self.size, -1).contiguous(), receive)

    def confess(self, note: Note) -> Mapping[int, Note | None]:
        self.abort()  # peers that wait for this rank fail now, and confess too
        return self._witness.swap(note)

    def abort(self) -> None:
        if self._backend != "gloo":
            self._group.abort()
            return
        peers = (rank for rank in range(self.size) if rank != self.rank)
        for peer in peers:  # gloo's abort leaves its connections open; a receive in vain closes them all
            with contextlib.suppress(RuntimeError):
                self._group.recv([torch.empty(1)], peer, 0).wait(timedelta(milliseconds=1))

    def close(self) -> None:
        for group in (self._group, self._alarm):
            with contextlib.suppress(ValueError):  # destroy_process_group() of the user was faster
                dist.destroy_process_group(group)


class _Then:
    """An act with a last local step."""

    def __init__(self, act: Pending, finish: Callable[[], object]) -> None:
        self._act, self._finish = act, finish

    def wait(self) -> None:
        self._act.wait()
        self._finish()


def _pending(work: dist.Work | None) -> Pending:
    return work if work is not None else Done()


def _new_name(parent: dist.ProcessGroup) -> str:
    """A name that no group had before: which compressor of this parent it is, counted by the store.

    torch's own names for groups that not all ranks make depend on how many groups this rank happens to have.
    """
    key = f"thinwire/{parent.group_name}"
    return f"{key}/{distributed_c10d._get_default_store().add(f'{key}/rank {parent.rank()}', 1)}"


def _connect(parent: dist.ProcessGroup, name: str, backend: str, timeout_s: float) -> dist.ProcessGroup:
    """A process group with the ranks of `parent`; ranks outside of it take no part."""
    ranks = dist.get_process_group_ranks(parent)
    make: Any = distributed_c10d._new_process_group_helper  # new_group cannot take a name
    group: dist.ProcessGroup
    try:
        group, _ = make(
            parent.size(),
            parent.rank(),
            ranks,
            backend,
            distributed_c10d._get_default_store(),
            name,
            timeout=timedelta(seconds=timeout_s),
        )
    except RuntimeError as error:
        raise PeerError(
            f"the ranks {', '.join(map(str, ranks))} found no connection to each other in {timeout_s:g} s: "
            f"all of them must call compress (or ddp_hook), in the same order ({error})"
        ) from error
    distributed_c10d._world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(ranks)}
    return group


def _timeout_s(group: dist.ProcessGroup) -> float:
    backend = group._get_backend(torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu"))
    timeout: timedelta = backend.options._timeout
    return timeout.total_seconds()
