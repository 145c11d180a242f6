"""Something that is made on a thread of its own, because making it may take for ever."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class Making(Generic[T]):
    """Makes a thing; who does not want to wait for it any longer says what is to be done with it then.

    >>> making = Making(lambda: 6 * 7)
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
