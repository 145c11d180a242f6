"""The thread that runs exchanges behind the backward pass, its CUDA stream, and buckets that must wait."""

from __future__ import annotations

import atexit
import contextlib
import math
import queue
import threading
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

import torch

from thinwire.clock import TUNE, Clock
from thinwire.devices import event_on, is_host
from thinwire.errors import PlanError
from thinwire.exchange.engine import Bucket
from thinwire.tensors import Layout


class SideStream:
    """The device's stream on which all exchanges run, one behind the other. A CPU has none.

    Why buffers may be used again: all kernels and collectives of thinwire are given to this one stream by one
    thread, so whatever writes a buffer of `Scratch` comes behind all that read it in the exchange before.
    NCCL's collectives run on a stream of NCCL's own, which waits for this one when they are started, and
    `wait` makes this one wait for them: no kernel behind `wait` sees a buffer before its numbers are there.
    Gradients come from the caller's stream, behind a mark of which the worker runs a job, and whoever reads
    means waits for a mark of this one (`Worker.follow`; DDP's future does it by itself).
    """

    def __init__(self, device: torch.device) -> None:
        self._device, self._module = device, torch.get_device_module(device)
        self._stream = self._module.Stream(device)

    @classmethod
    def on(cls, device: torch.device) -> SideStream | None:
        return None if is_host(device) else cls(device)

    def mark(self) -> Any:
        """What the current stream has been given so far."""
        return event_on(self._device)

    def current(self) -> AbstractContextManager[Any]:
        """Meanwhile it is the current stream of this thread."""
        entered: AbstractContextManager[Any] = self._module.stream(self._stream)
        return entered


@dataclass(frozen=True)
class HeldBucket:
    """A bucket whose exchange is not queued yet."""

    bucket: Bucket
    job: Callable[[], None]
    finish: Callable[[], None]


class WholeGradient:
    """Buckets of one backward pass, in the order in which they came."""

    def __init__(self) -> None:
        self._held: dict[Layout, HeldBucket] = {}

    def hold(self, held: HeldBucket) -> None:
        """Of a bucket that comes twice the first was of a backward pass that was broken off."""
        self._held.pop(held.bucket.layout, None)
        self._held[held.bucket.layout] = held

    def release(self) -> list[HeldBucket]:
        """All of them; the next bucket is that of another step."""
        held, self._held = list(self._held.values()), {}
        return held


def norm_of(buckets: Iterable[Bucket]) -> float:
    """||g|| without the loss scale; it does not depend on how g is cut into buckets.

    >>> from thinwire.tensors import Spec
    >>> layout = Layout.packed([Spec("a", (2,))])
    >>> norm_of([Bucket(torch.tensor([6.0, 8.0]), layout, loss_scale=2.0)])
    5.0
    """
    return math.sqrt(
        math.fsum(
            (float(torch.linalg.vector_norm(bucket.buffer[piece], dtype=torch.float64)) / bucket.loss_scale)
            ** 2
            for bucket in buckets
            for piece in bucket.layout.slices
        )
    )


T = TypeVar("T")
Act = Callable[[], None]
LEAVE_S = 2.0  # a process that ends does not wait longer for a job to fail


class Worker:
    """Runs jobs one after the other on a thread of its own.

    Collectives must be issued in the same order on all ranks, hence one thread. After the first error, or
    after `stop`, no job touches the network any more: jobs are skipped and `error` says why. The thread lives
    until it is stopped and then calls `release`: neither may hold what stops it when it is collected.
    At the end of the process `abort` gets it out of a job: a thread that comes back from native code into
    an interpreter that is no more would take the process down (SIGABRT).

    With a stream, a job runs on it behind all that the current stream was given before the job was queued.
    """

    def __init__(
        self,
        explain: Callable[[Exception], Exception],
        release: Act = lambda: None,
        abort: Act = lambda: None,
        stream: SideStream | None = None,
    ) -> None:
        self.error: Exception | None = None
        self.failed = False  # by a job: being stopped is an error for later jobs, but no failure
        self._explain, self._release, self._abort = explain, release, abort
        self._stream = stream
        self._done: Any = None  # a mark of the stream behind the last job
        self._leaving = self._stopping = False
        self._idle = threading.Event()
        self._idle.set()
        self._jobs: queue.SimpleQueue[tuple[Act, Act, Any] | None] = queue.SimpleQueue()
        self._ended = False
        self._ending = threading.RLock()  # a job is either queued before the end, or told of it
        self._thread = threading.Thread(target=self._run, name="thinwire", daemon=True)
        self._thread.start()
        atexit.register(self._leave)

    def submit(self, job: Act, done: Act) -> None:
        """Queues a job; `done` is called after it, whether it worked, failed or was skipped."""
        ready = None if self._stream is None else self._stream.mark()
        with self._ending:
            if not self._ended:
                self._jobs.put((job, done, ready))
                return
        done()

    def follow(self) -> None:
        """What the current stream is given next comes behind all jobs that are over; nobody waits here."""
        if self._done is not None:
            self._done.wait()

    def call(self, job: Callable[[], T]) -> T:
        """Runs a job in its turn and waits for its result: on a device, until all of it is launched."""
        results: list[T] = []
        finished = threading.Event()
        self.submit(lambda: results.append(job()), finished.set)
        finished.wait()
        if self.error is not None:
            raise self.error
        self.follow()
        return results[0]

    def stop(self) -> None:
        """Lets the thread end behind what is queued; waits for nothing, so that a finalizer may call it."""
        self._stopping = True
        self._jobs.put(None)

    def close(self) -> None:
        """Runs what is queued, then ends the thread; later jobs meet an error."""
        self.stop()
        self._thread.join()

    def _run(self) -> None:
        with contextlib.nullcontext() if self._stream is None else self._stream.current():
            self._work()
        self._end()

    def _work(self) -> None:
        while (item := self._jobs.get()) is not None:
            job, done, ready = item
            self._idle.clear()
            try:
                if self.error is None:
                    if ready is not None:
                        ready.wait()
                    job()
                    if self._stream is not None:
                        self._done = self._stream.mark()
            except Exception as error:  # every kind: whatever failed, the training thread must hear of it
                self.error, self.failed = error if self._leaving else self._explain(error), True
            finally:
                done()
                self._idle.set()
            del item, job, done  # a finished job must not keep its bucket alive while the thread waits

    def _leave(self) -> None:
        """At the end of the process: nothing of ours may be in native code when the interpreter is gone."""
        if self._stopping and self._idle.is_set():
            self._thread.join(LEAVE_S)  # it is giving up its connections
        elif not self._idle.is_set():
            self._leaving = True
            with contextlib.suppress(RuntimeError, ValueError):  # the script has destroyed its groups
                self._abort()
            self._idle.wait(LEAVE_S)

    def _end(self) -> None:
        if self.error is None:
            self.error = PlanError(
                "this compressor was closed, its model cannot exchange gradients any more: "
                "close it after the last step, or wrap the net in a new DistributedDataParallel"
            )
        try:
            self._release()
        finally:
            atexit.unregister(self._leave)
            with self._ending:
                self._ended = True
            while not self._jobs.empty():  # what was queued behind the end
                item = self._jobs.get()
                if item is not None:
                    item[1]()


def call_measuring(worker: Worker, clock: Clock, job: Callable[[], T]) -> T:
    """Runs a collective measurement in its turn; what it meets on the wire is most likely a peer's fault."""

    def begun() -> T:
        clock.current = TUNE
        return job()

    return worker.call(begun)
