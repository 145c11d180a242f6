"""Gathered payloads: every rank's is decoded by itself, and the values are added in rank order."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from itertools import accumulate, pairwise

from torch import Tensor

from thinwire.codecs.coders.base import Context, Packer, Part
from thinwire.tensors.layout import Layout

UNIT = 1 << 20  # elements: a larger tensor is coded in pieces of this size, so that one travels meanwhile
ALIGN = 8  # payloads are whole multiples of this many bytes, so that no copy is needed behind the network


class GatherPacker(Packer):
    """The payload of a lane whose tensors, or units of them, are coded one by one, each for itself.

    A lane may therefore be cut between any two units: what they become does not depend on their neighbours.
    A coder of this kind has to say how many bytes it makes, how it encodes, and how payloads add up.
    """

    num_granules = 1
    merges = False

    def __init__(self, layout: Layout, context: Context, granule_bytes: int) -> None:
        self.layout, self.context = layout, context
        self.granule_bytes = aligned(granule_bytes)

    @abstractmethod
    def rebind(self, layout: Layout) -> GatherPacker:
        """The same coder bound to other units."""

    @abstractmethod
    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        """x = the mean, in rank order, of what the payloads (ranks, bytes) stand for."""

    def cut_points(self) -> list[int]:
        return [0, *accumulate(spec.numel for spec in self.layout.specs)]

    def parts(self, count: int) -> list[Part]:
        ranges = cut(self.layout.numel, self.cut_points(), count)
        return [Part(self.rebind(self._units(first, last)), first, last) for first, last in ranges]

    def span(self, first: int, last: int) -> Packer:
        units = self._units(first, last)
        return self.rebind(Layout.packed(units.specs, units.group))

    def moved(self, base: int) -> Packer:
        return self.rebind(self.layout.moved(base))

    def merged_bytes(self, num_granules: int) -> int:
        return num_granules * self.granule_bytes * self.context.world

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        sums.copy_(payloads.reshape(-1))

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        if self.granule_bytes:  # else only empty tensors
            self.add_up(sums.reshape(self.context.world, self.granule_bytes), x)

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        if self.granule_bytes:
            self.add_up(payload[: self.granule_bytes].unsqueeze(0), x)

    def _units(self, first: int, last: int) -> Layout:
        """The units that are the elements first..last."""
        specs, offsets = self.layout.specs, self.layout.offsets
        chosen = [i for i, (a, b) in enumerate(pairwise(self.cut_points())) if first <= a and b <= last]
        return Layout(tuple(specs[i] for i in chosen), tuple(offsets[i] for i in chosen), self.layout.group)


def unit_size(block: int) -> int:
    """Elements of a unit that is whole blocks, about UNIT of them; 0, a tensor in one block, is not cut.

    >>> unit_size(512), unit_size(3 << 20), unit_size(0)
    (1048576, 3145728, 0)
    """
    return max(1, UNIT // block) * block if block else 0


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def cut(end: int, points: Iterable[int], count: int) -> list[tuple[int, int]]:
    """At most `count` ranges that are 0..end together, about equal, cut only at the given points.

    >>> cut(100, [0, 10, 60, 90], 3)
    [(0, 60), (60, 90), (90, 100)]
    """
    ends: list[int] = []
    for point in points:
        if len(ends) < count - 1 and point >= end * (len(ends) + 1) / count and point < end:
            ends.append(point)
    return list(zip([0, *ends], [*ends, end], strict=True))
