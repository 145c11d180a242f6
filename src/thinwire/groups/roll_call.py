"""A roll call: calls that every rank must make between the same two exchanges, and who has not made them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class Call:
    """One of them: what a rank called, as its user wrote it, and how many exchanges it had begun by then."""

    what: str
    begun: int


class RollCall:
    """The calls of all ranks, in order. A rank that begins the next exchange has let the call pass by.

    >>> roll = RollCall(rank=1, ranks=range(2))
    >>> roll.heard(0, Call("state_dict(gather=True)", 0)); roll.passed_by  # rank 1 may still call it
    >>> roll.begin(); roll.passed_by
    Call(what='state_dict(gather=True)', begun=0)
    >>> roll.absent()
    ('state_dict(gather=True)', [1])
    """

    def __init__(self, rank: int, ranks: Iterable[int]) -> None:
        self._rank = rank
        self._calls: dict[int, list[Call]] = {peer: [] for peer in ranks}
        self._begun = 0
        self._settled = 0  # calls that all ranks have made, and made alike
        self._stuck: Call | None = None

    def make(self, what: str) -> Call:
        """This rank calls it; the others are to be told."""
        call = Call(what, self._begun)
        self._calls[self._rank].append(call)
        return call

    def heard(self, rank: int, call: Call) -> None:
        """A peer has called it."""
        self._calls[rank].append(call)

    def begin(self) -> None:
        """This rank begins an exchange."""
        self._begun += 1

    def wait_elsewhere(self) -> None:
        """This rank waits for the others in another collective, and will not come to their call."""
        self._stuck = next(iter(self.open_calls.values()), None)

    @property
    def open_calls(self) -> dict[int, Call]:
        """By peer: the first call that this rank has not made, or not yet."""
        made = len(self._calls[self._rank])
        return {rank: calls[made] for rank, calls in self._calls.items() if len(calls) > made}

    @property
    def passed_by(self) -> Call | None:
        """A call of a peer that this rank will not make any more: it is in a later exchange."""
        late = (call for call in self.open_calls.values() if call.begun < self._begun)
        return self._stuck or next(late, None)

    @property
    def awaited(self) -> set[int]:
        """Who has made fewer calls than this rank."""
        made = len(self._calls[self._rank])
        return {rank for rank, calls in self._calls.items() if len(calls) < made}

    def disagreement(self) -> tuple[dict[int, str], int] | None:
        """What each rank called where they called different things, and the number of that call."""
        for number in range(self._settled, max(map(len, self._calls.values()))):
            told = {rank: calls[number].what for rank, calls in self._calls.items() if len(calls) > number}
            if len(set(told.values())) > 1:
                return told, number
            if len(told) == len(self._calls):
                self._settled = number + 1
        return None

    def absent(self) -> tuple[str, list[int]] | None:
        """The last call that somebody made and somebody did not, and who did not."""
        most = max(map(len, self._calls.values()))
        absent = [rank for rank, calls in self._calls.items() if len(calls) < most]
        if not absent:
            return None
        what = next(calls[-1].what for calls in self._calls.values() if len(calls) == most)
        return what, absent
