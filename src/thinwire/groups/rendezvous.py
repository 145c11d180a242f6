"""Rendezvous: ranks find each other through the store of torch.distributed, and learn who is missing."""

from __future__ import annotations

import contextlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any, Generic, TypeVar

import torch.distributed as dist
from torch.distributed import distributed_c10d

from thinwire.errors import PeerError
from thinwire.groups.base import FailureReport

T = TypeVar("T")


class BackgroundTask(Generic[T]):
    """Makes a thing; who does not want to wait for it any longer says what is to be done with it then.

    >>> making = BackgroundTask(lambda: 6 * 7)
    >>> making.over(10), making.result()
    (True, 42)
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._made: list[T] = []
        self._failures: list[Exception] = []
        self._unmake: Callable[[T], object] | None = None
        self._ending = threading.Lock()
        self._thread = threading.Thread(target=self._run, args=(make,), name="thinwire making", daemon=True)
        self._thread.start()

    def over(self, timeout_s: float) -> bool:
        """Waits for the end; whether it has come."""
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def result(self) -> T:
        """The thing, or the error that came instead."""
        for failure in self._failures:
            raise failure
        return self._made[0]

    def abandon(self, unmake: Callable[[T], object]) -> None:
        """Nobody waits any more: the thing is unmade when it is there."""
        with self._ending:
            self._unmake = unmake
            made, self._made = self._made, []
        for thing in made:
            unmake(thing)

    def _run(self, make: Callable[[], T]) -> None:
        try:
            thing = make()
        except Exception as error:
            self._failures.append(error)
            return
        with self._ending:
            if self._unmake is None:
                self._made.append(thing)
                return
        self._unmake(thing)


DECLINE_S = 2.0  # a rank that gives up does not wait longer for a store that does not answer
_TELLING_S = 10.0  # who gives up stays so long for those who have yet to hear why: it may keep the store
_GLANCES_S = 0.005, 0.5  # between two looks into the store: at first, and at most
_ANSWER_S = (
    3.0  # what the store may take to answer beyond the time to wait: one in a file looks once a second
)


class Rendezvous:
    """The n-th rendezvous of the ranks of a process group; every rank brings its peer info.

    1. The name is this rank's own count in the store: torch's names for groups that not all ranks make depend
       on how many groups this rank happens to have.
    2. `attend` puts this rank's peer info into the store and waits for all others.
    3. The first whose time is up says who is missing. All who came hear it before anybody leaves: with rank 0
       the store would go, and who came last would blame rank 0.
    4. A rank that cannot come says why (`decline`), so that nobody waits for it.
    """

    def __init__(self, store: distributed_c10d.Store, series: str, ranks: Sequence[int], rank: int) -> None:
        self._store, self._series, self._ranks, self._rank = store, f"thinwire/{series}", ranks, rank
        self._name: str | None = None

    @classmethod
    def of(cls, parent: dist.ProcessGroup) -> Rendezvous:
        """The next meeting of a process group, through torch's default store."""
        ranks = dist.get_process_group_ranks(parent)
        return cls(distributed_c10d._get_default_store(), parent.group_name, ranks, parent.rank())

    def name(self, timeout_s: float) -> str:
        """No meeting had this name before; it is the same on all ranks."""
        if self._name is None:
            key = f"{self._series}/rank {self._rank}"
            self._name = f"{self._series}/{self._ask(lambda: self._store.add(key, 1), timeout_s)}"
        return self._name

    def attend(self, peer_info: Mapping[str, Any], timeout_s: float) -> list[dict[str, Any]]:
        """The cards of all ranks, in order; raises an error that names who is missing or has declined."""
        keys = [f"{self.name(timeout_s)}/card {rank}" for rank in range(len(self._ranks))]
        self._ask(lambda: self._store.set(keys[self._rank], json.dumps({"card": dict(peer_info)})), timeout_s)
        missing = self._ask(lambda: self._missing(keys, timeout_s), timeout_s + _ANSWER_S)
        if missing:
            self._part(set(range(len(keys))) - set(missing))
            everyone = ", ".join(map(str, self._ranks))
            raise PeerError(
                f"{self._named(missing)} did not call compress (or ddp_hook) within {timeout_s:g} s: it "
                "died, failed before, or makes fewer compressed models; look at its log. All of rank "
                f"{everyone} must call it, in the same order"
            )
        peer_infos = [json.loads(text) for text in self._ask(lambda: self._store.multi_get(keys), timeout_s)]
        declined = {rank for rank, brought in enumerate(peer_infos) if "declined" in brought}
        if declined:
            self._part(set(range(len(keys))) - declined)
        for rank, brought in enumerate(peer_infos):
            if "declined" in brought:
                raise PeerError(f"rank {self._ranks[rank]} could not start: {brought['declined']}")
        return [brought["card"] for brought in peer_infos]

    def decline(self, failure: FailureReport) -> None:
        """Tells those who wait for this rank why it does not come."""
        with contextlib.suppress(PeerError):
            key = f"{self.name(DECLINE_S)}/card {self._rank}"
            self._ask(lambda: self._store.set(key, json.dumps({"declined": failure.text})), DECLINE_S)

    def _missing(self, keys: Sequence[str], timeout_s: float) -> list[int]:
        """Who has not come when this rank's time is up, or the first one's.

        It looks now and then: a store that is told to wait prints a warning each time its wait is over.
        """
        deadline, told = time.monotonic() + timeout_s, f"{self._name}/missing"
        glance_s, longest_s = _GLANCES_S
        while not self._store.check(list(keys)):
            if self._store.check([told]):
                missing: list[int] = json.loads(self._store.get(told))
                return missing
            left = deadline - time.monotonic()
            if left <= 0:
                missing = [rank for rank, key in enumerate(keys) if not self._store.check([key])]
                self._store.set(told, json.dumps(missing))
                return missing
            time.sleep(min(left, glance_s))
            glance_s = min(2 * glance_s, longest_s)
        return []

    def _part(self, present: set[int]) -> None:
        """Waits until all who came know why the meeting has failed."""
        known = [f"{self._name}/knows {rank}" for rank in sorted(present)]

        def wait_for_all() -> None:
            self._store.set(f"{self._name}/knows {self._rank}", "")
            self._store.wait(known, timedelta(seconds=_TELLING_S))

        with contextlib.suppress(PeerError):  # the store is gone, or somebody is too slow
            self._ask(wait_for_all, _TELLING_S + _ANSWER_S)

    def _ask(self, question: Callable[[], T], timeout_s: float) -> T:
        """Asks the store, on a thread of its own: a store whose keeper is stopped never answers."""
        asking = BackgroundTask(question)
        try:
            if asking.over(timeout_s):
                return asking.result()
            trouble: Exception = TimeoutError(f"no answer in {timeout_s:g} s")
        except Exception as error:
            trouble = error
        raise PeerError(
            "the store of torch.distributed is gone or does not answer; rank 0 keeps it, or the agent of "
            f"torchrun: look at the log of rank 0 ({trouble})"
        ) from trouble

    def _named(self, ranks: Sequence[int]) -> str:
        return "rank " + ", ".join(str(self._ranks[rank]) for rank in ranks)
