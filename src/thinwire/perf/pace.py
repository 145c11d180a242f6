"""A pace: how long one kind of collective takes by its bytes, as it was measured on a group."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thinwire.errors import LabError


@dataclass(frozen=True)
class Pace:
    """Seconds by bytes of an act, straight lines between what was measured and on beyond the last.

    Where processors move the bytes no single latency and bandwidth describes all collectives: a ring of
    8 workers on 2 cores walks 14 hops, and each is a turn of the scheduler. Below the smallest size it is
    the smallest one's time.

    >>> Pace("all_reduce", (1000, 2000), (0.5, 1.0)).seconds(4000)
    2.0
    """

    kind: str
    nbytes: tuple[int, ...]
    taken_s: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.nbytes or len(self.nbytes) != len(self.taken_s):
            raise LabError(
                f"pace of {self.kind}: {len(self.nbytes)} sizes and {len(self.taken_s)} times must be "
                "equally many, and at least one"
            )
        if list(self.nbytes) != sorted(set(self.nbytes)) or min(self.taken_s) < 0:
            raise LabError(f"pace of {self.kind}: sizes must grow and times be 0 or above: measure anew")

    @classmethod
    def of(cls, kind: str, nbytes: Sequence[int], taken_s: Sequence[float]) -> Pace:
        """From measurements; more bytes never take less time, whatever the noise says."""
        rising, most = [], 0.0
        for one in taken_s:
            most = max(most, one)
            rising.append(most)
        return cls(kind, tuple(nbytes), tuple(rising))

    @property
    def latency_s(self) -> float:
        """What the shortest act takes."""
        return self.taken_s[0]

    @property
    def bytes_per_s(self) -> float:
        """Along the last line: what long acts gain by more time."""
        if len(self.nbytes) < 2 or self.taken_s[-1] <= self.taken_s[-2]:
            return float("inf")
        return (self.nbytes[-1] - self.nbytes[-2]) / (self.taken_s[-1] - self.taken_s[-2])

    def seconds(self, nbytes: float) -> float:
        if nbytes <= self.nbytes[0]:
            return self.taken_s[0]
        if nbytes >= self.nbytes[-1]:
            return self.taken_s[-1] + (nbytes - self.nbytes[-1]) / self.bytes_per_s
        right = bisect_right(self.nbytes, nbytes)
        (n0, n1), (t0, t1) = self.nbytes[right - 1 : right + 1], self.taken_s[right - 1 : right + 1]
        return t0 + (t1 - t0) * (nbytes - n0) / (n1 - n0)

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "nbytes": list(self.nbytes), "taken_s": list(self.taken_s)}

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Pace:
        return cls(str(made["kind"]), tuple(map(int, made["nbytes"])), tuple(map(float, made["taken_s"])))
