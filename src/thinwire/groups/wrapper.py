"""A group around another group: the base of wrappers that add one behaviour each."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping

from torch import Tensor

from thinwire.groups.base import Group, Note, Pending, gather_bytes, max_bytes, sum_bytes, swap_bytes


class WrappedGroup(Group):
    """Hands every act on; `act` sees its name and the bytes this rank sends in it."""

    def __init__(self, inner: Group) -> None:
        self.inner, self.rank, self.size = inner, inner.rank, inner.size

    @abstractmethod
    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        """Starts one act."""

    def connect(self) -> None:
        self.inner.connect()

    def sum_(self, tensor: Tensor) -> Pending:
        return self.act("sum", sum_bytes(tensor.nbytes, self.size), lambda: self.inner.sum_(tensor))

    def max_(self, words: Tensor) -> Pending:
        return self.act("max", max_bytes(words.nbytes, self.size), lambda: self.inner.max_(words))

    def swap(self, send: Tensor, receive: Tensor) -> Pending:
        return self.act("swap", swap_bytes(send.nbytes, self.size), lambda: self.inner.swap(send, receive))

    def gather(self, send: Tensor, receive: Tensor) -> Pending:
        return self.act(
            "gather", gather_bytes(send.nbytes, self.size), lambda: self.inner.gather(send, receive)
        )

    def global_rank(self, rank: int) -> int:
        return self.inner.global_rank(rank)

    def confess(self, note: Note) -> Mapping[int, Note | None]:
        return self.inner.confess(note)

    def abort(self) -> None:
        self.inner.abort()

    def close(self) -> None:
        self.inner.close()
