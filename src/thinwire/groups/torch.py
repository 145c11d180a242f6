"""A group over torch.distributed (gloo, NCCL, MPI) with connections of its own."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.groups.base import SMALL_BYTES, Group, Note

# Newer torch warns of the old name, older torch lacks the new one.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_CONFESSION_SHARE = 0.15  # of the timeout: kept back for finding out who failed
_CONFESSION_MAX_S = 10.0


class TorchGroup(Group):
    """Collectives of thinwire's own process group, so that they cannot mix with those of DDP.

    The group fails after 85 % of the parent's timeout: the rest is for naming the rank at fault.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        parent = process_group if process_group is not None else dist.group.WORLD
        if parent is None:
            raise RuntimeError("torch.distributed is not initialised: call init_process_group first")
        timeout_s = _timeout_s(parent)
        self._confession_s = min(_CONFESSION_MAX_S, _CONFESSION_SHARE * timeout_s)
        self._ranks = dist.get_process_group_ranks(parent)
        self._group = dist.new_group(
            self._ranks,
            timeout=timedelta(seconds=timeout_s - self._confession_s),
            use_local_synchronization=True,
        )
        self._store = dist.PrefixStore(
            f"thinwire/{self._group.group_name}", dist.distributed_c10d._get_default_store()
        )
        self.rank = self._group.rank()
        self.size = self._group.size()

    def sum_(self, tensor: Tensor) -> None:
        dist.all_reduce(tensor, group=self._group)

    def max_(self, words: Tensor) -> None:
        if words.nbytes > SMALL_BYTES:
            dist.all_reduce(words, op=dist.ReduceOp.MAX, group=self._group)
            return
        received = torch.empty(self.size, words.numel(), dtype=words.dtype, device=words.device)
        self.swap(words.expand(self.size, -1).contiguous(), received)
        torch.amax(received, dim=0, out=words)

    def swap(self, send: Tensor, receive: Tensor) -> None:
        dist.all_to_all_single(receive, send, group=self._group)

    def gather(self, send: Tensor, receive: Tensor) -> None:
        _all_gather(receive.view(-1), send, group=self._group)

    def confess(self, note: Note) -> Mapping[int, Note]:
        found: dict[int, Note] = {self.rank: note}
        deadline = time.monotonic() + self._confession_s
        try:
            self._store.set(str(self.rank), json.dumps([note.stage, note.text, note.own]))
            self.abort()  # peers that wait for this rank fail now, and confess too
            while len(found) < self.size and time.monotonic() < deadline:
                for rank in set(range(self.size)) - set(found):
                    if self._store.check([str(rank)]):
                        found[rank] = Note(*json.loads(self._store.get(str(rank))))
                time.sleep(0.02)
        except (RuntimeError, dist.DistError):  # the store is gone: so is the rank that kept it
            pass
        return found

    def abort(self) -> None:
        self._group.abort()

    def close(self) -> None:
        dist.destroy_process_group(self._group)


def _timeout_s(group: dist.ProcessGroup) -> float:
    backend = group._get_backend(torch.device("cuda" if dist.get_backend(group) == "nccl" else "cpu"))
    timeout: timedelta = backend.options._timeout
    return timeout.total_seconds()
