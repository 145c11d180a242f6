"""What a group can do, and how many bytes each act makes a rank send."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

SMALL_BYTES = 16384  # at most so many bytes go straight to every peer: one hop, not a walk around the ring

LEFT = "leave"  # the stage of a rank that has ended in good order


@dataclass(frozen=True)
class Note:
    """What a rank says when its exchange fails. `own`: the fault is its own, not a peer's."""

    stage: str
    text: str
    own: bool


UNREACHED = Note("meet", "no connection to it was ever made", own=False)  # stands for what it might say


class Pending(Protocol):
    """An act under way. Its tensors must not be touched before `wait` has returned."""

    def wait(self) -> object: ...


class Done:
    """An act that was over when it returned."""

    def wait(self) -> None:
        pass


class Group(ABC):
    """N ranks that exchange tensors. All ranks start the same acts in the same order with the same sizes."""

    rank: int
    size: int

    def global_rank(self, rank: int) -> int:
        """The number by which users know rank `rank` of this group."""
        return rank

    def connect(self) -> None:  # noqa: B027  most groups are born connected
        """Finds the other ranks; before this only `rank`, `size`, `confess` and `close` mean something."""

    @abstractmethod
    def sum_(self, tensor: Tensor) -> Pending:
        """Adds a float tensor over all ranks, in place (ring all-reduce)."""

    @abstractmethod
    def max_(self, words: Tensor) -> Pending:
        """Maximum of an int32 tensor over all ranks, in place."""

    @abstractmethod
    def swap(self, send: Tensor, receive: Tensor) -> Pending:
        """All-to-all: row r of `send` (ranks, bytes) goes to rank r; row r of `receive` came from rank r."""

    @abstractmethod
    def gather(self, send: Tensor, receive: Tensor) -> Pending:
        """All-gather: row r of `receive` (ranks, bytes) is what rank r sent."""

    @abstractmethod
    def confess(self, note: Note) -> Mapping[int, Note | None]:
        """After a failure: tells the peers why, aborts, and waits a moment for what they have to tell.

        None stands for a rank that is gone; ranks that are missing in the result gave no sign of life.
        """

    @abstractmethod
    def abort(self) -> None:
        """Closes the connections, so that no peer waits for this rank."""

    @abstractmethod
    def close(self) -> None:
        """Gives up the group and all that it holds, healthy or not; twice is no error."""


def sum_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in a ring all-reduce of `nbytes`: 2 (N-1)/N of it."""
    return 2 * (size - 1) * nbytes // size


def max_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank to find a maximum: (N-1) copies while small, else a ring all-reduce."""
    return (size - 1) * nbytes if nbytes <= SMALL_BYTES else sum_bytes(nbytes, size)


def swap_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in an all-to-all of `nbytes` in all."""
    return nbytes // size * (size - 1)


def gather_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in an all-gather of `nbytes` a rank."""
    return nbytes * (size - 1)
