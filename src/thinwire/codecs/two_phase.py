"""Two phases for payloads that cannot be added on the wire: owners decode, add up and encode again."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import accumulate

from torch import Tensor

from thinwire.codecs.coder import GatherPacker, Packer, Part, cut
from thinwire.codecs.stage import owner
from thinwire.tensors import Key, Layout, Piece, Spec

STEP, LEAST = 256, 1024  # groups: shares are whole steps and at least this long, but for the last of a unit


@dataclass(frozen=True)
class Share:
    """A part of a unit that one rank owns: where it lies in the buffer, and in its tensor."""

    spec: Spec
    offset: int
    start: int  # its first element, counted from the start of the tensor
    tensor_numel: int
    owner: int
    begins: bool  # whether it is the first of its unit: a lane may be cut before it


@lru_cache(maxsize=16)
def shares_of(units: Layout, world: int) -> tuple[Share, ...]:
    """Every unit cut into one share per rank, or fewer where shares would be short.

    Owners follow from the tensor's name, not from buckets: what an owner holds back stays where it is.

    >>> units = Layout.packed([Spec("a", (3000,))])
    >>> [(share.start, share.spec.numel) for share in shares_of(units, 2)], len(shares_of(units, 64))
    ([(0, 1536), (1536, 1464)], 3)
    """
    found, starts = [], Counter[str]()
    numels = Counter[str]()
    for spec in units.specs:
        numels[spec.name] += spec.numel
    step = STEP * units.group
    for spec, offset in zip(units.specs, units.offsets, strict=True):
        size = max(-(-spec.numel // (world * step)) * step, LEAST * units.group)
        first_owner = owner(spec.name, world) + spec.unit
        for number, first in enumerate(range(0, spec.numel, size)):
            shape = (min(size, spec.numel - first),)
            share = Spec(spec.name, shape, spec.dtype, spec.unit * world + number)
            found.append(
                Share(
                    share,
                    offset + first,
                    starts[spec.name] + first,
                    numels[spec.name],
                    (first_owner + number) % world,
                    number == 0,
                )
            )
        starts[spec.name] += spec.numel
    return tuple(found)


class TwoPhasePacker(Packer):
    """Payloads of which every rank owns a row; what an owner makes of its rows is a payload too.

    1. all-to-all: the owner of a share gets what every rank encoded of it
    2. the owner takes the mean of what these payloads stand for, and encodes it again
    3. all-gather: every rank decodes what the owners encoded

    A rank sends 2 (N - 1) / N payloads, whatever N is; an all-gather sends N - 1 of them. (Top-k sends more
    elements of a mean: `GatherPacker.for_mean`.) Row r holds all shares of rank r as the coder packs them,
    padded to the longest row. Tang et al., "1-bit Adam", ICML 2021.
    """

    reencodes = True

    def __init__(self, coder: GatherPacker, shares: Sequence[Share]) -> None:
        self.coder, self.mean_coder, self.shares = coder, coder.for_mean(), tuple(shares)
        self.num_granules = coder.context.world
        alike = {tuple(share.spec.numel for share in mine): mine for mine in self._owned.values()}.values()
        self.granule_bytes = max((_row(coder, mine).granule_bytes for mine in alike), default=0)
        self.mean_bytes = max((_row(self.mean_coder, mine).granule_bytes for mine in alike), default=0)

    @cached_property
    def rows(self) -> list[GatherPacker]:
        """What packs the shares of every owner. Planning for thousands of workers does not need them."""
        return [_row(self.coder, self._owned.get(rank, [])) for rank in range(self.num_granules)]

    @cached_property
    def mean_rows(self) -> list[GatherPacker]:
        """What packs the means of every owner's shares."""
        return [_row(self.mean_coder, self._owned.get(rank, [])) for rank in range(self.num_granules)]

    @cached_property
    def _owned(self) -> dict[int, list[Share]]:
        """The shares of every owner that has any."""
        owned: dict[int, list[Share]] = {}
        for share in self.shares:
            owned.setdefault(share.owner, []).append(share)
        return owned

    @classmethod
    def of(cls, packer: GatherPacker) -> TwoPhasePacker:
        """The packer of a lane, for owners."""
        return cls(packer, shares_of(packer.layout, packer.context.world))

    @cached_property
    def _ends(self) -> list[int]:
        """Where shares begin and end if they are counted end to end."""
        return list(accumulate((share.spec.numel for share in self.shares), initial=0))

    def cut_points(self) -> list[int]:
        begins = (end for end, share in zip(self._ends, self.shares, strict=False) if share.begins)
        return [*begins, self._ends[-1]]

    def parts(self, count: int) -> list[Part]:
        ranges = cut(self._ends[-1], self.cut_points(), count)
        return [Part(TwoPhasePacker(self.coder, self._within(*both)), *both) for both in ranges]

    def span(self, first: int, last: int) -> Packer:
        chosen, offset = [], 0
        for share in self._within(first, last):
            chosen.append(replace(share, offset=offset))
            offset += share.spec.numel
        return TwoPhasePacker(self.coder, chosen)

    def moved(self, base: int) -> Packer:
        return TwoPhasePacker(self.coder, [replace(s, offset=s.offset - base) for s in self.shares])

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        for row, part in zip(self.rows, payload.view(len(self.rows), -1), strict=True):
            part[row.granule_bytes :].zero_()
            if row.granule_bytes:
                row.encode(x, shared, key, part)

    def tallies(self) -> dict[str, dict[str, float]]:
        """Of all rows together: a tensor has shares in many of them."""
        total: dict[str, Counter[str]] = {}
        for row in self.rows:
            for name, numbers in row.tallies().items():
                total.setdefault(name, Counter()).update(numbers)
        return {name: dict(numbers) for name, numbers in total.items()}

    def merged_bytes(self, num_granules: int) -> int:
        return num_granules * self.mean_bytes

    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        raise NotImplementedError("an owner needs its error feedback and a key to encode again")

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        for row, part in zip(self.mean_rows, sums, strict=True):
            row.decode_local(part, shared, x)

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        for row, part in zip(self.rows, payload.view(len(self.rows), -1), strict=True):
            row.decode_local(part, shared, x)

    @cached_property
    def owned(self) -> GatherPacker:
        """What unpacks the shares that this rank owns, into a buffer in which they lie end to end."""
        row = self.rows[self.coder.context.rank].layout
        return self.coder.rebind(Layout.packed(row.specs, row.group))

    @cached_property
    def owned_mean(self) -> GatherPacker:
        """What packs their mean, in that buffer."""
        return self.mean_coder.rebind(self.owned.layout)

    @cached_property
    def owned_pieces(self) -> tuple[Piece, ...]:
        """What this rank owns, in that buffer; and of every tensor a piece without elements."""
        mine = [share for share in self.shares if share.owner == self.coder.context.rank]
        offsets = accumulate((share.spec.numel for share in mine), initial=0)
        owned = {
            share.spec.name: Piece(share.spec.name, share.tensor_numel, 0, 0, 0) for share in self.shares
        }  # nothing of every tensor: all ranks have state of the same tensors
        return (
            *owned.values(),
            *(
                Piece(share.spec.name, share.tensor_numel, share.start, offset, share.spec.numel)
                for share, offset in zip(mine, offsets, strict=False)
            ),
        )

    def _within(self, first: int, last: int) -> tuple[Share, ...]:
        """The shares that are the elements first..last, counted end to end."""
        return self.shares[bisect_left(self._ends, first) : bisect_left(self._ends, last)]


def _row(coder: GatherPacker, shares: Sequence[Share]) -> GatherPacker:
    specs, offsets = tuple(s.spec for s in shares), tuple(s.offset for s in shares)
    return coder.rebind(Layout(specs, offsets, coder.layout.group))
