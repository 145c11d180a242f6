"""A pace: how long one kind of collective takes by its bytes, as it was measured on a group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

from thinwire.errors import LabError

STEEPEST = 8.0  # beyond the longest act: times its own bytes per second


@dataclass(frozen=True)
class Pace:
    """Seconds by bytes of an act, straight lines between what was measured and on beyond the last.

    Where processors move the bytes no single latency and bandwidth describes all collectives: a ring of
    8 workers on 2 cores walks 14 hops, and each is a turn of the scheduler. Below the smallest size it is
    the smallest one's time.

    `busy_s` is the same while all workers compute: an act then waits for its turns on the cores. `lost_s` is
    how long it holds up what they compute. Empty: nobody looked, an act takes what it takes alone.

    >>> Pace("all_reduce", (1000, 2000), (0.5, 1.0)).seconds(4000)
    2.0
    """

    kind: str
    nbytes: tuple[int, ...]
    taken_s: tuple[float, ...]
    busy_s: tuple[float, ...] = ()
    lost_s: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        if not self.nbytes or len(self.nbytes) != len(self.taken_s):
            raise LabError(
                f"pace of {self.kind}: {len(self.nbytes)} sizes and {len(self.taken_s)} times must be "
                "equally many, and at least one"
            )
        if list(self.nbytes) != sorted(set(self.nbytes)) or min(self.taken_s) < 0:
            raise LabError(f"pace of {self.kind}: sizes must grow and times be 0 or above: measure anew")

    @classmethod
    def of(
        cls,
        kind: str,
        nbytes: Sequence[int],
        taken_s: Sequence[float],
        busy_s: Sequence[float] = (),
        lost_s: Sequence[float] = (),
    ) -> Pace:
        """From measurements; more bytes never take less time, and company never saves any, noise or not."""
        alone = _rising(taken_s)
        busy = _rising([max(pair) for pair in zip(busy_s, alone, strict=False)])
        lost = _rising([min(max(0.0, one), most) for one, most in zip(lost_s, busy, strict=False)])
        return cls(kind, tuple(nbytes), alone, busy, lost)

    @property
    def busy(self) -> Pace:
        """How long acts take while all workers compute."""
        return replace(self, taken_s=self.busy_s or self.taken_s, busy_s=(), lost_s=())

    @property
    def lost(self) -> Pace | None:
        """How long acts hold up what workers compute, if that was measured."""
        return replace(self, taken_s=self.lost_s, busy_s=(), lost_s=()) if self.lost_s else None

    @property
    def latency_s(self) -> float:
        """What the shortest act takes."""
        return self.taken_s[0]

    @property
    def bytes_per_s(self) -> float:
        """What acts longer than the longest measured one gain by more time: the slope of the last line.

        A slope between two acts that took about as long says nothing (noise, a token bucket that let both
        through): it never counts for more than STEEPEST times what the longest act reached.
        """
        if self.taken_s[-1] == 0:
            return float("inf")
        reached = STEEPEST * self.nbytes[-1] / self.taken_s[-1]
        if len(self.nbytes) < 2 or self.taken_s[-1] == self.taken_s[-2]:
            return reached
        return min(reached, (self.nbytes[-1] - self.nbytes[-2]) / (self.taken_s[-1] - self.taken_s[-2]))

    def scaled(self, factor: float) -> Pace:
        """The same acts, each taking so many times as long."""
        times = (tuple(factor * s for s in values) for values in (self.taken_s, self.busy_s, self.lost_s))
        return Pace(self.kind, self.nbytes, *times)

    def seconds(self, nbytes: float) -> float:
        if nbytes <= self.nbytes[0]:
            return self.taken_s[0]
        if nbytes >= self.nbytes[-1]:
            return self.taken_s[-1] + (nbytes - self.nbytes[-1]) / self.bytes_per_s
        right = bisect_right(self.nbytes, nbytes)
        (n0, n1), (t0, t1) = self.nbytes[right - 1 : right + 1], self.taken_s[right - 1 : right + 1]
        return t0 + (t1 - t0) * (nbytes - n0) / (n1 - n0)

    def to_json(self) -> dict[str, Any]:
        times = {name: list(getattr(self, name)) for name in ("taken_s", "busy_s", "lost_s")}
        return {"kind": self.kind, "nbytes": list(self.nbytes), **times}

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Pace:
        times = (tuple(map(float, made[name])) for name in ("taken_s", "busy_s", "lost_s"))
        return cls(str(made["kind"]), tuple(map(int, made["nbytes"])), *times)


def _rising(values: Sequence[float]) -> tuple[float, ...]:
    return tuple(accumulate(values, max))
