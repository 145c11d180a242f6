"""The group of a rank that takes no part in an exchange: it knows how many there are, and sends nothing."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from thinwire.groups.base import Confession, Done, Group, Pending


class Audience(Group):
    """Stands for rank `rank` of `size`, which another process is.

    What is only compared is found equal; that gradients are sent from here is a fault.
    """

    def __init__(self, whole: Group, rank: int, size: int) -> None:
        self._whole, self.rank, self.size = whole, rank, size

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        receive[:] = send
        return Done()

    def all_reduce(self, tensor: Tensor) -> Pending:
        raise self._fault("all_reduce")

    def all_reduce_max(self, words: Tensor) -> Pending:
        raise self._fault("all_reduce_max")

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        raise self._fault("all_to_all")

    def confess(self, confession: Confession) -> Mapping[int, Confession | None]:
        return self._whole.confess(confession)

    def abort(self) -> None:
        self._whole.abort()

    def close(self) -> None:
        """The whole is closed by itself."""

    def _fault(self, act: str) -> AssertionError:
        return AssertionError(f"{act} on a rank that leads no node: leaders alone exchange between nodes")
