"""A group as slow as a given link: for seeing on one machine what a network would cost."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from thinwire.groups.base import Group
from thinwire.groups.wrapper import WrappedGroup
from thinwire.rate import parse_rate


@dataclass(frozen=True)
class Link:
    """The link of every host: its rate in each direction and the latency of one hop."""

    rate: str
    latency_s: float = 0.0002

    @property
    def bits_per_s(self) -> float:
        return parse_rate(self.rate)


_HOPS: Mapping[str, Callable[[int], int]] = MappingProxyType(
    {"sum": lambda n: 2 * (n - 1), "max": lambda n: 1, "swap": lambda n: 1, "gather": lambda n: n - 1}
)


class Emulated(WrappedGroup):
    """Every act lasts at least hops * latency + 8 * bytes / rate."""

    def __init__(self, inner: Group, link: Link) -> None:
        super().__init__(inner)
        self._link, self._bits_per_s = link, link.bits_per_s

    def act(self, name: str, nbytes: int, run: Callable[[], None]) -> None:
        start = time.monotonic()
        run()
        if self.size > 1:
            least_s = _HOPS[name](self.size) * self._link.latency_s + 8 * nbytes / self._bits_per_s
            time.sleep(max(0.0, start + least_s - time.monotonic()))
