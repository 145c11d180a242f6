"""A group over torch.distributed (gloo, NCCL, MPI) with connections of its own."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, TCPStore
from torch.distributed import distributed_c10d

from thinwire.errors import PlanError
from thinwire.groups.base import ABSENT, LEFT, FailureReport, Group
from thinwire.groups.collectives import Collectives
from thinwire.groups.rendezvous import BackgroundTask, Rendezvous
from thinwire.groups.witness import Listener, Standstill, Witness

ProcessGroup = dist.ProcessGroup  # for those who only hand one on


class TorchPart(Collectives):
    """Lives and fails with the whole: it has no witness, and its process group is closed by the whole."""

    def __init__(
        self, whole: Group, rank: int, ranks: Sequence[int], process_group: dist.ProcessGroup
    ) -> None:
        super().__init__(rank, ranks)
        self._whole, self._made, self.process_group = whole, process_group, process_group

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        return self._whole.report_failure(failure)

    def abort(self) -> None:
        self._whole.abort()

    def close(self) -> None:
        """The whole closes it."""


_CONFESSION_SHARE = 0.15  # of the timeout: kept back for finding out who failed
_CONFESSION_MAX_S = 10.0
_LATE_S = 2.0  # a peer in a collective of DDP fails after the full timeout, and may have begun later
_WORDS_OF_GLOO = ("gloo/", "Application timeout caused pair closure", "Connection closed by peer")
_UNMET_S = 60.0  # a peer that nobody met has so long to show up: it died, or a firewall let nobody through
_GLANCE_S = 0.05  # between two looks whether all peers are still there
_WAKE_S = 1.0  # a rank that waits for a call wakes now and then, so that it can be interrupted
_STANDSTILL_S = (
    5.0  # a rank that waits so long in a collective with one that waits for its call will not come
)


class TorchGroup(Collectives):
    """Collectives of thinwire's own process group, so that they cannot mix with those of DDP.

    The group fails after 85 % of the parent's timeout: the rest is for naming the rank at fault. That is
    found out over connections of their own, the witness.
    """

    def __init__(self, process_group: dist.ProcessGroup | None = None) -> None:
        parent = process_group if process_group is not None else dist.group.WORLD
        if parent is None:
            raise PlanError(
                "torch.distributed is not initialised: call torch.distributed.init_process_group first"
            )
        super().__init__(parent.rank(), dist.get_process_group_ranks(parent))
        self._parent = parent
        self._backend = dist.get_backend(parent)
        self._rendezvous = Rendezvous.of(parent)
        self._witness: Witness | None = None
        self._parts: list[TorchPart] = []
        self._standstill = Standstill(threading.get_ident(), _STANDSTILL_S)
        self._outside = False  # the step under way goes DDP's own way
        self._over = False  # somebody has failed

    def connect(self) -> None:
        if self._made is not None:
            return
        timeout_s = _timeout_s(self._parent)
        failure_s = min(_CONFESSION_MAX_S, _CONFESSION_SHARE * timeout_s)
        patience_s = timeout_s - failure_s
        name = self._rendezvous.name(patience_s)
        with contextlib.closing(Listener(_store_host())) as listener:
            peer_infos = self._rendezvous.attend(listener.peer_info(), patience_s)
            self._witness = listener.witness(self.rank, peer_infos, failure_s + _LATE_S)
        look = weakref.WeakMethod(self._look)  # the witness' thread must not keep the group
        self._witness.heard = lambda: (look() or _nothing)()
        self._made = self._connected(self._ranks, name, patience_s)

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        named = [self._ranks[rank] for rank in ranks]
        timeout_s = _timeout_s(self._group)
        name = f"{self._rendezvous.name(timeout_s)}/{'node' if inside else 'leaders'} {ranks[0]}"
        part = TorchPart(self, ranks.index(self.rank), named, self._connected(named, name, timeout_s))
        self._parts.append(part)
        return part

    def _connected(self, ranks: Sequence[int], name: str, timeout_s: float) -> dist.ProcessGroup:
        """The process group; a peer that dies before it is made is met at once: gloo may try for 30 s."""
        assert self._witness is not None
        task = BackgroundTask(lambda: _connect(ranks, self._ranks[self.rank], name, self._backend, timeout_s))
        patience_s = timeout_s if self._witness.complete else min(timeout_s, _UNMET_S)
        deadline = time.monotonic() + patience_s
        while not task.over(_GLANCE_S):
            if self._witness.ended() or time.monotonic() > deadline:
                task.abandon(dist.destroy_process_group)
                raise RuntimeError("the ranks found no connection to each other")
        return task.result()

    def ended(self) -> Mapping[int, FailureReport | None]:
        return {} if self._witness is None else self._witness.ended()

    def announce(self, what: str) -> None:
        if self._witness is not None:
            self._witness.call(what)

    def await_calls(self) -> None:
        if self._witness is None:
            return
        witness, roll = self._witness, self._witness.roll
        deadline = time.monotonic() + _timeout_s(self._group)
        with witness.news:
            while roll.awaited and not witness.ended() and time.monotonic() < deadline:
                self._refuse_disagreement()
                witness.news.wait(_WAKE_S)
            self._refuse_disagreement()
            if roll.awaited:
                raise RuntimeError("not all ranks have made the same calls")

    def begin_exchange(self) -> None:
        if self._witness is None:
            return
        with self._witness.news:
            self._outside = False
            if self._witness.roll.begin():
                return
            passed_by, waits = self._witness.roll.passed_by, bool(self._witness.roll.awaited)
        if passed_by is not None:
            raise RuntimeError(f"another rank waits in {passed_by.what}")
        if waits:
            self.await_calls()
        else:
            self._refuse_disagreement()

    def go_outside(self) -> None:
        self._outside = True

    def absent(self) -> tuple[str, list[int]] | None:
        return None if self._witness is None else self._witness.roll.absent()

    def _look(self) -> None:
        """On the witness' thread, while a peer waits for a call of this rank: in vain, and all fail."""
        assert self._witness is not None
        if "nccl" in backends_of(self._parent) and _somebody_failed(self._witness.ended()):
            self.abort()  # nobody waits for NCCL: its kernels would until the watchdog ends the process
            return
        with self._witness.news:
            roll = self._witness.roll
            still = any(self._standstill.waits_for(self._ranks[peer]) for peer in roll.open_calls)
            if still and roll.passed_by is None:
                roll.wait_elsewhere()
            passed_by, outside = roll.passed_by, still or self._outside
        if passed_by is None or self._over:
            return
        if outside:  # this rank waits in DDP's group, where it will never be met
            self._witness.tell(FailureReport(ABSENT, passed_by.what, own=True))
            hang_up(self._parent)
        else:
            self.abort()

    def _refuse_disagreement(self) -> None:
        assert self._witness is not None
        with self._witness.news:
            found = self._witness.roll.disagreement()
        if found is not None:
            told = ", ".join(f"rank {self._ranks[rank]} {what}" for rank, what in sorted(found[0].items()))
            raise PlanError(
                f"ranks call different things between two steps: {told}; call the same ones on every rank, "
                "in the same order"
            )

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        self._over = True
        self.abort()  # peers that wait for this rank fail now, and report too
        if self._witness is None:
            self._rendezvous.decline(failure)
            return {self.rank: failure}
        with self._witness.news:
            passed_by = self._witness.roll.passed_by
        if passed_by is not None and not failure.own:
            return self._witness.trade(FailureReport(ABSENT, passed_by.what, own=True))
        if failure.own:  # nothing to find out
            self._witness.tell(failure)
            return {self.rank: failure}
        return self._witness.trade(failure)

    def abort(self) -> None:
        for group in self._groups:
            hang_up(group)

    def close(self) -> None:
        """A healthy rank says good-bye: a peer that still waits for it hears why it will not come."""
        if self._witness is not None:
            self._witness.tell(
                FailureReport(LEFT, "its compressor was closed, or its model is gone", own=True)
            )
            self._witness.close()
        groups, self._made, self._parts = self._groups, None, []
        for made in groups:
            with contextlib.suppress(ValueError):  # destroy_process_group() of the user was faster
                dist.destroy_process_group(made)

    @property
    def _groups(self) -> list[dist.ProcessGroup]:
        """The process groups of this rank: those of its parts, then its own."""
        own = [] if self._made is None else [self._made]
        return [part.process_group for part in self._parts] + own


def _somebody_failed(ended: Mapping[int, FailureReport | None]) -> bool:
    """Whether a peer died or failed; one that has left in good order has done its part."""
    return any(said is None or (said.own and said.operation != LEFT) for said in ended.values())


def hang_up(group: dist.ProcessGroup) -> None:
    """Closes a group's connections, so that nobody waits for this rank: it will take part in nothing more."""
    used = backends_of(group)
    if used - {"gloo"}:
        group.abort()
    if "gloo" not in used:
        return
    peers = (rank for rank in range(group.size()) if rank != group.rank())
    for peer in peers:  # gloo's abort leaves its connections open; a receive in vain closes them all
        with contextlib.suppress(RuntimeError):
            group.recv([torch.empty(1)], peer, 0).wait(timedelta(milliseconds=1))


def backends_of(group: dist.ProcessGroup) -> set[str]:
    """The backends of a group: one, one for each kind of device ("cpu:gloo,cuda:nccl"), none if destroyed.

    A group that was made without a backend has torch's defaults, and `get_backend` calls it "undefined".
    """
    if group not in distributed_c10d._world.pg_backend_config:
        return set()
    return {pair.partition(":")[2] for pair in str(dist.get_backend_config(group)).split(",")}


def on_the_wire(error: BaseException) -> bool:
    """Whether a backend raised it: torch has no class for what gloo says."""
    return isinstance(error, dist.DistError) or any(words in str(error) for words in _WORDS_OF_GLOO)


def _connect(ranks: Sequence[int], own: int, name: str, backend: str, timeout_s: float) -> dist.ProcessGroup:
    """A process group of ranks of the default group; others take no part."""
    make: Any = distributed_c10d._new_process_group_helper  # new_group cannot take a name
    group: dist.ProcessGroup
    group, _ = make(
        len(ranks),
        ranks.index(own),
        list(ranks),
        backend,
        distributed_c10d._get_default_store(),
        name,
        timeout=timedelta(seconds=timeout_s),
    )
    distributed_c10d._world.pg_group_ranks[group] = {rank: index for index, rank in enumerate(ranks)}
    return group


def _timeout_s(group: dist.ProcessGroup) -> float:
    backend = group._get_backend(torch.device("cuda" if "gloo" not in backends_of(group) else "cpu"))
    timeout: timedelta = backend.options._timeout
    return timeout.total_seconds()


def _nothing() -> None:
    pass


def _store_host() -> str | None:
    """The host that keeps the store, if it is kept by one."""
    store = distributed_c10d._get_default_store()
    while isinstance(store, PrefixStore):
        store = store.underlying_store
    return store.host if isinstance(store, TCPStore) else None
