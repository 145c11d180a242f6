"""Who is to blame for a failed exchange, named on every rank; and DDP's own all-reduce, watched."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket

from thinwire.clock import COMPARE, CONNECT, NODE, OUTSIDE, ROLL_CALL, TUNE, WEIGHTS
from thinwire.errors import DriftError, PeerError, PlanError
from thinwire.groups.base import ABSENT, LEFT, UNREACHED, FailureReport, Group
from thinwire.groups.torch import hang_up

_ON_THE_WIRE = frozenset({"agree", "travel", NODE, WEIGHTS, COMPARE, CONNECT, OUTSIDE, ROLL_CALL, TUNE})

_STEPS = "look at its log; all ranks must make the same number of steps, or use torch's Join"


def explain(error: Exception, operation: str, group: Group) -> Exception:
    """The error to raise for an exchange that failed with `error` in `operation`.

    1. Ranks that disagree on plans or parameters, or did not all come, know it already: nothing to find out.
    2. An error on the wire is most likely a peer's: every rank says what it saw; the silent one is to blame.
    3. Any other error is this rank's own: the peers are told, and see it named.
    """
    if isinstance(error, PlanError | DriftError) and operation in (COMPARE, ROLL_CALL):
        return error
    if isinstance(error, PeerError) and operation == CONNECT:
        return error
    memory = isinstance(error, torch.OutOfMemoryError)  # a RuntimeError too, and never a peer's fault
    from_backend = isinstance(error, RuntimeError) and not memory
    own = operation not in _ON_THE_WIRE or not from_backend
    failures = group.report_failure(FailureReport(operation, f"{type(error).__name__}: {error}", own))
    if own:
        return error
    explained = PeerError(_sentence(failures, operation, group))
    explained.__cause__ = error
    return explained


def _sentence(failures: Mapping[int, FailureReport | None], operation: str, group: Group) -> str:
    spoken = [
        (rank, failure) for rank, failure in sorted(failures.items()) if failure is not None and failure.own
    ]
    for rank, failure in spoken:
        if failure.operation not in (LEFT, ABSENT):
            named = group.global_rank(rank)
            return f'rank {named} failed in operation "{failure.operation}": {failure.text}'
    failed = f'exchange failed in operation "{operation}"'
    advice = "look at the log of that worker, then restart the job from its last checkpoint"
    gone = [rank for rank, failure in failures.items() if failure is None]
    if gone:
        return f"{failed}: {_ranks(gone, group)} closed the connection or died; {advice}"
    absent, silent = group.absent(), set(range(group.size)) - set(failures)
    if absent and set(absent[1]) <= silent:  # whoever passes a call by says so
        return f"{failed}: no sign of life from {_ranks(absent[1], group)}; {absent[0]} waited; {advice}"
    if absent and (operation == ROLL_CALL or any(said.operation == ABSENT for _, said in spoken)):
        return _absence(*absent, group)
    waited = any(failure is not None and failure.waited for failure in failures.values())
    if not (silent and waited):  # else who left had done its part, for its connections did not fail
        for rank, failure in spoken:
            named = group.global_rank(rank)
            return f"{failed}: rank {named} takes part no more ({failure.text}); {_STEPS}"
    if silent:
        return f"{failed}: no sign of life from {_ranks(silent, group)}; {advice}"
    unreached = [rank for rank, failure in failures.items() if failure is UNREACHED]
    if 0 < len(unreached) < max(2, group.size - 1):  # if nobody was reached that is a firewall, not a fault
        return f"{failed}: no sign of life from {_ranks(unreached, group)} since the start; {advice}"
    mine = failures[group.rank]
    return (
        f"{failed} although all {group.size} ranks are alive: {mine.text if mine else ''}; "
        "a link broke or was too slow for the group's timeout"
    )


def _absence(what: str, absent: list[int], group: Group) -> str:
    present = set(range(group.size)) - set(absent)
    return (
        f"{_ranks(absent, group)} did not call {what}, {_ranks(present, group)} did: call it on every rank, "
        "between the same two steps, outside of `if rank == 0:`; what it returns may be saved by one of them"
    )


def _ranks(ranks: Iterable[int], group: Group) -> str:
    return "rank " + ", ".join(str(group.global_rank(rank)) for rank in sorted(ranks))


LEFT_S = 10.0  # a peer that has left may have done its part; what it sent is here by then
_GLANCE_S = 0.05  # between two looks whether all peers are still there


class PlainAllReduce:
    """All-reduces of DDP's own group, any number of them under way.

    The training thread gives them to DDP (`settle`), the worker's listens to the peers meanwhile (`wait`).
    Nothing of Python hangs on gloo's threads: one that is a little late when the interpreter is gone takes
    the process down (SIGABRT).
    """

    def __init__(self) -> None:
        self.process_group: dist.ProcessGroup | None = None  # None: the default group
        self.error: RuntimeError | None = None  # what a bucket met there
        self.under_way: list[tuple[dist.Work, torch.futures.Future[torch.Tensor], torch.Tensor]] = []
        self._changed = threading.Condition()

    def start(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The future always yields the bucket, once it is settled; what went wrong is in `error`."""
        buffer, group = bucket.buffer(), self._group
        devices: list[int | str | torch.device] = [buffer.device] if buffer.is_cuda else []
        future: torch.futures.Future[torch.Tensor] = torch.futures.Future(devices=devices)
        buffer.mul_(1 / group.size())  # as DDP does: for three ranks a quotient has other bits
        work = dist.all_reduce(buffer, group=group, async_op=True)
        assert work is not None
        with self._changed:
            self.under_way.append((work, future, buffer))
        return future

    def settle(self) -> None:
        """Waits for the buckets that are under way: before DDP does."""
        while self.under_way:
            work, future, buffer = self.under_way[0]
            try:
                work.wait()
            except RuntimeError as error:
                self.error = error
            future.set_result(buffer)
            with self._changed:
                self.under_way.pop(0)
                self._changed.notify_all()

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
            return self._changed.wait_for(lambda: not self.under_way, timeout_s)


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
