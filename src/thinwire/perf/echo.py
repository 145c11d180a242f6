"""A group of one rank that looks like many: whatever it sends comes back at once, as if from everybody."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from torch import Tensor

from thinwire.groups.base import Confession, Done, Group, Pending


class EchoGroup(Group):
    """Collectives without a network, so that what is left of an exchange's time is the codec's own.

    Every peer is thought to have sent what this rank sends. `seconds` is what the copying took, which a
    real group does on the way: it is no part of the codec.
    """

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.seconds = rank, size, 0.0

    def all_reduce(self, tensor: Tensor) -> Pending:
        return Done()

    def all_reduce_max(self, words: Tensor) -> Pending:
        return Done()

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        with self._aside():
            receive.view(self.size, -1).copy_(send.view(self.size, -1)[self.rank].expand(self.size, -1))
        return Done()

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        with self._aside():
            receive.view(self.size, -1).copy_(send.view(-1).expand(self.size, -1))
        return Done()

    def confess(self, confession: Confession) -> Mapping[int, Confession | None]:
        return {self.rank: confession}

    def abort(self) -> None:
        pass

    def close(self) -> None:
        pass

    @contextmanager
    def _aside(self) -> Iterator[None]:
        start = time.perf_counter()
        yield
        self.seconds += time.perf_counter() - start
