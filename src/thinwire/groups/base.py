"""What a group can do, and how many bytes each collective makes a rank send."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

import torch
from torch import Tensor

from thinwire.errors import PlanError

SMALL_BYTES = 16384  # at most so many bytes go straight to every peer: one hop, not a walk around the ring

LEFT = "leave"  # the operation of a rank that has ended in good order
ABSENT = "roll call"  # that of a rank which did not make a call that others made


@dataclass(frozen=True)
class FailureReport:
    """What a rank says when its exchange fails. `own`: the fault is its own, not a peer's."""

    operation: str
    text: str
    own: bool

    @property
    def waited(self) -> bool:
        """Whether it saw a timeout: then nobody closed a connection, and somebody is silent."""
        return not self.own and any(words in self.text.lower() for words in ("timed out", "timeout"))


UNREACHED = FailureReport(
    "meet", "no connection to it was ever made", own=False
)  # stands for what it might say


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
        """Finds the other ranks. Before, only `rank`, `size`, `report_failure` and `close` mean something."""

    def announce(self, what: str) -> None:  # noqa: B027  ranks of one process call what the process calls
        """This rank calls something that every rank must call before its next exchange."""

    def await_calls(self) -> None:  # noqa: B027
        """Waits until every rank has made the calls that this one made; an error if one will not."""

    def begin_exchange(self) -> None:  # noqa: B027
        """Before the first bucket of a step: an error if a peer waits for a call of this rank."""

    def go_outside(self) -> None:  # noqa: B027
        """The step that has begun goes DDP's own way."""

    def absent(self) -> tuple[str, list[int]] | None:
        """The last call that not all ranks made, and which did not."""
        return None

    @abstractmethod
    def all_reduce(self, tensor: Tensor) -> Pending:
        """Adds a float tensor over all ranks, in place (ring all-reduce)."""

    @abstractmethod
    def all_reduce_max(self, words: Tensor) -> Pending:
        """Maximum of an int32 tensor over all ranks, in place."""

    @abstractmethod
    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        """All-to-all: row r of `send` (ranks, bytes) goes to rank r; row r of `receive` came from rank r."""

    @abstractmethod
    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        """All-gather: row r of `receive` (ranks, bytes) is what rank r sent."""

    def broadcast(self, tensor: Tensor) -> Pending:
        """Gives everybody the tensor of rank 0, in place."""
        raise NotImplementedError(f"{type(self).__name__} is no group of a node: it cannot broadcast")

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        """A group of some of these ranks, called by them alone; `inside`: they share a node.

        It fails with the whole: who aborts one aborts all, and the whole alone is asked who is to blame.
        """
        raise NotImplementedError(f"{type(self).__name__} has no parts")

    def ended(self) -> Mapping[int, FailureReport | None]:
        """Peers that take part no more, and what they said or None; waits for nothing."""
        return {}

    @abstractmethod
    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        """After a failure: tells the peers why, aborts, and waits a moment for what they have to tell.

        None stands for a rank that is gone; ranks that are missing in the result gave no sign of life.
        """

    @abstractmethod
    def abort(self) -> None:
        """Closes the connections, so that no peer waits for this rank."""

    @abstractmethod
    def close(self) -> None:
        """Gives up the group and all that it holds, healthy or not; twice is no error."""


def all_reduce_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in a ring all-reduce of `nbytes`: 2 (N-1)/N of it."""
    return 2 * (size - 1) * nbytes // size


def reduce_scatter_bytes(nbytes: int, size: int) -> int:
    """The least that one rank sends in a reduce-scatter of `nbytes`: (N-1)/N of it. gloo sends twice that."""
    return (size - 1) * nbytes // size


# What gradients cost as they are, by the collective that they go by.
PLAIN_ACTS: Mapping[str, Callable[[int, int], int]] = MappingProxyType(
    {"all-reduce": all_reduce_bytes, "reduce-scatter": reduce_scatter_bytes}
)


def all_reduce_max_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank to find a maximum: (N-1) copies while small, else a ring all-reduce."""
    return (size - 1) * nbytes if nbytes <= SMALL_BYTES else all_reduce_bytes(nbytes, size)


def all_to_all_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in an all-to-all of `nbytes` in all."""
    return nbytes // size * (size - 1)


def all_gather_bytes(nbytes: int, size: int) -> int:
    """Sent by one rank in an all-gather of `nbytes` a rank."""
    return nbytes * (size - 1)


def broadcast_bytes(nbytes: int, rank: int, size: int) -> int:
    """Sent by one rank in a broadcast of `nbytes` down a binomial tree: rank r hands it on to r + 2^i > 2r.

    >>> [broadcast_bytes(1, rank, 8) for rank in range(8)]
    [3, 2, 1, 1, 0, 0, 0, 0]
    """
    return nbytes * sum(rank < 1 << i < size - rank for i in range(size.bit_length()))


def compare_digests(group: Group, digest: bytes, what: str, device: torch.device) -> None:
    """A fixed-size exchange: all ranks raise, or none."""
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(device)
    everyone = torch.empty(group.size, mine.numel(), dtype=torch.uint8, device=device)
    group.all_gather(mine, everyone).wait()
    differing = [rank for rank in range(group.size) if not torch.equal(everyone[rank], everyone[0])]
    if differing:
        raise PlanError(
            f"ranks disagree on their {what}: rank {group.global_rank(0)} and rank "
            f"{', '.join(str(group.global_rank(rank)) for rank in differing)} differ; "
            "build the same model and pass the same codec on every rank"
        )
