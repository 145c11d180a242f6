"""Forest: how comparisons are cut into digits and joined: the public plan of a comparison, no data in it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.lookup import Column

DIGIT_BITS = 4


@dataclass(frozen=True)
class Join:
    """Two nodes of tree `tree` become one: gt = gt_hi xor eq_hi gt_lo and, if asked, eq = eq_hi eq_lo."""

    tree: int
    low: int
    with_eq: bool


@dataclass(frozen=True)
class Tree:
    """A comparison of numbers of `bits` bits; `with_eq` asks for equality too."""

    bits: int
    with_eq: bool = False

    @property
    def digits(self) -> tuple[int, ...]:
        """Widths of the digits, lowest first."""
        whole, rest = divmod(self.bits, DIGIT_BITS)
        return (DIGIT_BITS,) * whole + ((rest,) if rest else ())

    def columns(self, count: int, kind: OtKind) -> list[Column]:
        """The lookup of each digit: 2 bits (gt, eq), 1 bit where equality is of no use.

        SCI's KK13 always takes 1-of-16 and 2 bits once there are two digits.
        """
        if kind.kk13 and len(self.digits) > 1:
            return [Column(count, DIGIT_BITS, 2) for _ in self.digits]
        useless = 0 if self.with_eq else 1  # the lowest digit's equality
        return [Column(count, width, 1 if place < useless else 2) for place, width in enumerate(self.digits)]


@dataclass(frozen=True)
class Forest:
    """Trees that are reduced side by side, level by level; then whole trees are joined, stage by stage.

    A stage holds pairs (high, low): tree `high` becomes the comparison of its bits above those of tree `low`.
    Low trees keep their own result, so that comparisons with equal low bits pay for them once.
    The last `twins` trees compare the same number of the client's with several of the server's: one lookup
    per digit answers them all.
    """

    trees: tuple[Tree, ...]
    stages: tuple[tuple[tuple[int, int], ...], ...] = ()
    twins: int = 1

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Trees that share their lookups."""
        alone = len(self.trees) - self.twins
        return (*((tree,) for tree in range(alone)), tuple(range(alone, len(self.trees))))

    def columns(self, count: int, kind: OtKind) -> list[Column]:
        """The lookups of all digits, group by group."""
        return [
            replace(column, bits=column.bits * len(group) if len(group) == 1 else 2 * len(group))
            for group in self.groups
            for column in self.trees[group[0]].columns(count, kind)
        ]

    @property
    def levels(self) -> tuple[tuple[Join, ...], ...]:
        """The joins of every level, those that also join equality first."""
        sizes = [len(tree.digits) for tree in self.trees]
        levels = []
        while max(sizes) > 1:
            joins = [
                Join(index, place, place > 0 or self.trees[index].with_eq)
                for index, size in enumerate(sizes)
                for place in range(0, size - 1, 2)
            ]
            levels.append(tuple(sorted(joins, key=lambda join: not join.with_eq)))
            sizes = [(size + 1) // 2 for size in sizes]
        return tuple(levels)


def stacked(*parts: int, tops: int) -> Forest:
    """`tops` comparisons whose bits differ in the highest part only: lower parts are compared once.

    parts: bits of the parts, lowest first; parts of 0 bits are left out. The last `tops` trees are the
    results; tree 0 is the comparison of the lowest part alone.

    >>> stacked(8, 9, tops=2).stages
    (((1, 0), (2, 0)),)
    """
    lower = [bits for bits in parts[:-1] if bits]
    trees = [Tree(bits, with_eq=place > 0) for place, bits in enumerate(lower)]
    highest = [Tree(parts[-1], with_eq=bool(lower))] * tops
    chain = tuple(((place, place - 1),) for place in range(1, len(lower)))
    last = (tuple((len(lower) + top, len(lower) - 1) for top in range(tops)),) if lower else ()
    return Forest((*trees, *highest), chain + last, tops)
