"""Lanes made by hypothesis: tensors of awkward sizes and values, their table, and room for the results."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor

from thinwire.kernels import Kernels

ROW = 32
SIZES = (0, 1, 31, 32, 33, 127, 128, 129, 159, 160, 161, 640, 1009, 2047, 2048, 2049, 5003)
KINDS = (
    "normal",
    "zeros",
    "negative zeros",
    "constant",
    "one outlier",
    "denormals",
    "largest",
    "tiny",
    "offset",
    "nan",
    "inf",
    "minus inf",
    "nan and inf",
)


@dataclass(frozen=True)
class Lane:
    """A buffer x with tensors in it; `table` has (offset, numel, row, scale, block, start) for each."""

    x: Tensor
    table: Tensor
    keys: Tensor
    num_scales: int
    num_granules: int
    digits: int
    made: tuple[Any, ...] = ()  # the arguments of `make_lane`

    @property
    def payload(self) -> Tensor:
        """A payload full of rubbish."""
        return torch.full((self.num_granules * ROW,), 0xAA, dtype=torch.uint8)

    @property
    def largest(self) -> Tensor:
        """For every scale of the table the largest |x| under it, as a bit pattern: NaN > Inf > numbers."""
        bits = torch.zeros(self.num_scales, dtype=torch.int32)
        for offset, numel, _, scale, block, start in self.table.view(-1, 6).tolist():
            magnitudes = self.x[offset : offset + numel].view(torch.int32) & 0x7FFFFFFF
            elements = torch.arange(start, start + numel)
            bits.scatter_reduce_(
                0, scale + (elements // block if block else 0 * elements), magnitudes, "amax"
            )
        return bits

    @property
    def rubbish(self) -> Tensor:
        """A buffer to decode into, full of something no kernel computes."""
        return torch.full_like(self.x, -12345.0)


def values(kind: str, size: int, seed: int) -> Tensor:
    """Gradients of one kind."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(size, generator=generator)
    special = {
        "zeros": lambda: x * 0.0,
        "negative zeros": lambda: torch.full_like(x, -0.0),
        "constant": lambda: torch.full_like(x, 0.1),
        "denormals": lambda: x * 1e-40,
        "largest": lambda: x.sign() * torch.finfo(torch.float32).max,
        "tiny": lambda: x * 1e-30,
        "offset": lambda: x * 1e-3 + 10.0,
    }
    x = special[kind]().contiguous() if kind in special else x
    if size:
        spot = seed % size
        inserted = {"one outlier": [1e4], "nan": [torch.nan], "inf": [torch.inf], "minus inf": [-torch.inf]}
        for number in inserted.get(kind, []):
            x[spot] = number
        if kind == "nan and inf":
            x[spot], x[0] = torch.inf, torch.nan
    return x


def make_lane(
    tensors: list[tuple[str, int, int]], seed: int, block: int, digits: int, start: int = 0
) -> Lane:
    """Lays tensors (kind, size, gap before it) into a buffer; the gaps belong to other lanes.

    With `start` each of them is the part of a longer tensor that begins at that element.
    """
    pieces, table, row, scale, offset = [], [], 0, 0, 0
    for index, (kind, size, gap) in enumerate(tensors):
        if block and not size:
            continue  # coders leave empty tensors out
        pieces += [torch.full((gap,), 777.0), values(kind, size, seed + index)]
        table += [offset + gap, size, row, scale, block, start]
        offset += gap + size
        row += -(-size // (ROW * digits)) * digits
        scale += -(-(start + size) // block) if block else 1
    generator = torch.Generator().manual_seed(seed)
    keys = torch.randint(-(2**31), 2**31, (len(table) // 3,), generator=generator).to(torch.int32)
    x = torch.cat(pieces) if pieces else torch.empty(0)
    made = tensors, seed, block, digits, start
    return Lane(x, torch.tensor(table, dtype=torch.int64), keys, scale, row // digits, digits, made)


MOST, MANY = 161, 2  # elements of a tensor, and tensors, that Triton's interpreter has time for
first_most = MOST  # of the first tensor; properties.py has time for whole programs of a GPU
WIDE = [("normal", 5120, 0), ("one outlier", 2053, 1)]  # aligned, and more than a program of a GPU has: kept


def few(kernels: Kernels, tensors: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """The tensors with which a set of kernels is compared: the interpreter runs programs one by one."""
    if kernels.name != "triton" or tensors == WIDE:
        return tensors
    found = [t for t in tensors[:1] if t[1] <= first_most] + [t for t in tensors[1:] if t[1] <= MOST]
    return found[:: max(1, -(-len(found) // MANY))]


def small(kernels: Kernels, lane: Lane) -> Lane:
    """The same of a lane."""
    if kernels.name != "triton" or not lane.made:
        return lane
    tensors, *rest = lane.made
    return make_lane(few(kernels, tensors), *rest)


def without_first(lane: Lane) -> Lane:
    """Neither rows nor scales of the tensors that are left begin at 0."""
    table, keys = lane.table.view(-1, 6)[1:], lane.keys.view(-1, 2)[1:]
    return replace(lane, table=table.flatten(), keys=keys.flatten(), made=())


tensor = st.tuples(st.sampled_from(KINDS), st.sampled_from(SIZES), st.sampled_from((0, 0, 0, 1, 7, 64)))
shape = {
    "tensors": st.lists(tensor, max_size=8),
    "seed": st.integers(0, 2**31),
    "block": st.sampled_from((0, 32, 64, 2048)),
    "digits": st.sampled_from((4, 5)),
}
lanes = st.builds(make_lane, **shape)
parts = st.builds(make_lane, **shape, start=st.sampled_from((32, 96, 160, 640, 4096)))
clips = st.sampled_from((float("inf"), 2.5, 0.7, 1e-3))
