"""The worker thread: jobs in order, nothing after the first error, nobody waits for ever."""

from __future__ import annotations

import functools
import threading

import pytest

from thinwire.errors import PlanError
from thinwire.hooks.worker import Worker


def make_worker() -> Worker:
    return Worker(lambda error: LookupError(f"explained: {error}"))


def test_jobs_run_in_order_on_one_thread_of_their_own() -> None:
    worker = make_worker()
    seen: list[tuple[int, str]] = []
    done = threading.Semaphore(0)

    def note(number: int) -> None:
        seen.append((number, threading.current_thread().name))

    for number in range(20):
        worker.submit(functools.partial(note, number), done.release)
    assert worker.call(lambda: "result") == "result"
    assert seen == [(number, "thinwire") for number in range(20)]
    assert all(done.acquire(blocking=False) for _ in range(20))
    worker.close()


def test_after_an_error_jobs_are_skipped_but_done_is_called() -> None:
    worker = make_worker()
    seen, done = list[str](), list[str]()
    worker.submit(lambda: seen.append("good"), lambda: done.append("good"))
    worker.submit(lambda: 1 / 0, lambda: done.append("bad"))  # type: ignore[arg-type,return-value]
    worker.submit(lambda: seen.append("late"), lambda: done.append("late"))
    with pytest.raises(LookupError, match="explained: division by zero"):
        worker.call(lambda: None)
    assert (seen, done) == (["good"], ["good", "bad", "late"])
    worker.close()
    assert isinstance(worker.error, LookupError)  # closing does not hide what happened


def test_after_close_jobs_meet_an_error_instead_of_waiting() -> None:
    worker = make_worker()
    worker.submit(lambda: None, lambda: None)
    worker.close()
    worker.close()
    done = threading.Event()
    worker.submit(lambda: pytest.fail("ran after close"), done.set)
    assert done.is_set()
    with pytest.raises(PlanError, match="closed"):
        worker.call(lambda: None)
