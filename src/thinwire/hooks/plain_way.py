"""DDP's own collectives: its all-reduce, where auto has nothing better; and whom they wait for in vain."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

from thinwire.groups.base import LEFT, Group
from thinwire.groups.torch import hang_up

LEFT_S = 10.0  # a peer that has left may have done its part; what it sent is here by then
_GLANCE_S = 0.05  # between two looks whether all peers are still there


class PlainWay:
    """All-reduces of DDP's own group, any number of them under way.

    Whoever waits for them listens to the peers too (`wait`).
    """

    def __init__(self) -> None:
        self.process_group: dist.ProcessGroup | None = None  # None: the default group
        self.error: RuntimeError | None = None  # what a bucket met there
        self._underway = 0
        self._changed = threading.Condition()

    def start(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The future always yields the bucket; what went wrong is in `error`."""
        buffer = bucket.buffer()
        with self._changed:
            self._underway += 1

        def received(done: torch.futures.Future[torch.Tensor]) -> torch.Tensor:
            try:
                return done.value()
            except RuntimeError as error:
                self.error = error
                return buffer
            finally:
                with self._changed:
                    self._underway -= 1
                    self._changed.notify_all()

        return allreduce_hook(self._group, bucket).then(received)

    def wait(self, group: Group) -> None:
        """Until all buckets are there. A peer that will not come ends it: the connections are closed."""
        if not awaited(self._over, group):
            self.hang_up()
            raise RuntimeError("DDP's all-reduce waits for a rank that takes part no more")

    def hang_up(self) -> None:
        """No peer shall wait for this rank."""
        hang_up(self._group)

    @property
    def _group(self) -> dist.ProcessGroup:
        return self.process_group or dist.distributed_c10d._get_default_group()

    def _over(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._underway, timeout_s)


def awaited(over: Callable[[float], bool], group: Group) -> bool:
    """Waits until `over`, which may itself wait so long, says so; False if a peer will not come any more.

    Nobody but gloo watches the connections of DDP, and gloo sees the end of a peer's process, not that a peer
    has stopped training.
    """
    began, noticed = time.monotonic(), 0.0
    while not over(_GLANCE_S):
        ended = group.ended().values()
        if not ended:
            continue
        now = time.monotonic()
        noticed = noticed or now
        failed = any(said is not None and said.own and said.operation != LEFT for said in ended)
        if failed or now - noticed > max(LEFT_S, noticed - began):
            return False
    return True


@contextlib.contextmanager
def listening(
    group: Group,
    process_group: dist.ProcessGroup,
    beside: Callable[[Callable[[], None], Callable[[], None]], None],
) -> Iterator[None]:
    """While this thread is in a collective of DDP another one listens (`beside` starts it), and ends it."""
    over = threading.Event()

    def listen() -> None:
        if not awaited(over.wait, group):
            hang_up(process_group)

    beside(listen, lambda: None)
    try:
        yield
    finally:
        over.set()
