"""A group around another group: the base of wrappers that add one behaviour each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence

from torch import Tensor

from thinwire.groups.base import (
    Confession,
    Group,
    Pending,
    all_gather_bytes,
    all_reduce_bytes,
    all_reduce_max_bytes,
    all_to_all_bytes,
    broadcast_bytes,
)


class WrappedGroup(Group):
    """Hands every act on; `act` sees its name and the bytes this rank sends in it."""

    def __init__(self, inner: Group) -> None:
        self.inner, self.rank, self.size = inner, inner.rank, inner.size

    @abstractmethod
    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        """Starts one act."""

    def connect(self) -> None:
        self.inner.connect()

    def all_reduce(self, tensor: Tensor) -> Pending:
        return self.act(
            "all_reduce", all_reduce_bytes(tensor.nbytes, self.size), lambda: self.inner.all_reduce(tensor)
        )

    def all_reduce_max(self, words: Tensor) -> Pending:
        return self.act(
            "all_reduce_max",
            all_reduce_max_bytes(words.nbytes, self.size),
            lambda: self.inner.all_reduce_max(words),
        )

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        return self.act(
            "all_to_all",
            all_to_all_bytes(send.nbytes, self.size),
            lambda: self.inner.all_to_all(send, receive),
        )

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        return self.act(
            "all_gather",
            all_gather_bytes(send.nbytes, self.size),
            lambda: self.inner.all_gather(send, receive),
        )

    def broadcast(self, tensor: Tensor) -> Pending:
        return self.act(
            "broadcast",
            broadcast_bytes(tensor.nbytes, self.rank, self.size),
            lambda: self.inner.broadcast(tensor),
        )

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        return self.inner.part(ranks, inside)

    def announce(self, what: str) -> None:
        self.inner.announce(what)

    def await_calls(self) -> None:
        self.inner.await_calls()

    def begin_exchange(self) -> None:
        self.inner.begin_exchange()

    def go_outside(self) -> None:
        self.inner.go_outside()

    def absent(self) -> tuple[str, list[int]] | None:
        return self.inner.absent()

    def global_rank(self, rank: int) -> int:
        return self.inner.global_rank(rank)

    def ended(self) -> Mapping[int, Confession | None]:
        return self.inner.ended()

    def confess(self, confession: Confession) -> Mapping[int, Confession | None]:
        return self.inner.confess(confession)

    def abort(self) -> None:
        self.inner.abort()

    def close(self) -> None:
        self.inner.close()
