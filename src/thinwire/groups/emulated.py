"""A group as slow as a given link: for seeing on one machine what a network would cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.groups.base import Group, Pending
from thinwire.groups.wrapper import WrappedGroup
from thinwire.texts.rate import parse_rate


@dataclass(frozen=True)
class Link:
    """The link of every host: its rate in each direction and the latency of one hop."""

    rate: str
    latency_s: float = 0.0002

    @property
    def bits_per_s(self) -> float:
        """The rate as a number."""
        return parse_rate(self.rate)


_HOPS: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {
        "all_reduce": lambda n: 2 * (n - 1),
        "all_reduce_max": lambda n: 1,
        "all_to_all": lambda n: 1,
        "all_gather": lambda n: n - 1,
        "broadcast": lambda n: (n - 1).bit_length(),
    }
)


class Emulated(WrappedGroup):
    """Every act takes the link for hops * latency + 8 * bytes / rate; acts under way wait for one another."""

    def __init__(self, inner: Group, link: Link) -> None:
        super().__init__(inner)
        self._link, self._bits_per_s = link, link.bits_per_s
        self._free_at = 0.0

    def part(self, ranks: Sequence[int], inside: bool = False) -> Group:
        """The link is between nodes: inside of one nothing is slowed down."""
        part = self.inner.part(ranks, inside)
        return part if inside else Emulated(part, self._link)

    def act(self, name: str, nbytes: int, start: Callable[[], Pending]) -> Pending:
        if self.size == 1:
            return start()
        taken_s = _HOPS[name](self.size) * self._link.latency_s + 8 * nbytes / self._bits_per_s
        self._free_at = max(self._free_at, time.monotonic()) + taken_s
        return _Slow(start(), self._free_at)


class _Slow:
    """An act that is over when the link has carried it, not before."""

    def __init__(self, act: Pending, over_at: float) -> None:
        self._act, self._over_at = act, over_at

    def wait(self) -> None:
        self._act.wait()
        time.sleep(max(0.0, self._over_at - time.monotonic()))
