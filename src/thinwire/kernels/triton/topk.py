"""Top-k on a GPU: two launches to select (topk_select.py, topk_places.py), two to add values back.

Columns of a run as in csrc/topk.h: (offset, chunk, count, k, low_bits, low_byte, high_byte, value, group).
The host knows how many values are kept, not how many chunks there are: a program has the chunks whose first
value lies in its SHARE of the values, so as many processors are busy as there are chunks.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from thinwire.kernels.triton import lanes
from thinwire.kernels.triton.topk_places import pack, unpack
from thinwire.kernels.triton.topk_select import FEW, ROOM, choose

SHARE = 128  # values
TILE = 2048  # elements that a program adds to
TAKEN = 1024  # elements that a program that chooses looks at together: with more, registers spill
BYTES = 128  # of indices that a program packs
BITS = 1024  # of marks that a program reads together


def select(x: Tensor, table: Tensor, indices: Tensor, values: Tensor, /) -> None:
    """The k largest groups of every chunk by their keys, of equal ones the first."""
    num, steps, count = table.numel() // 9, lanes.halvings(table.numel() // 9), values.numel()
    programs = triton.cdiv(count, SHARE)
    room = 2 * count + programs * ROOM.value if x.numel() >= FEW.value else 0  # for candidates of all chunks
    places = torch.empty(count + room, dtype=torch.int32, device=x.device)
    keys = torch.empty(room, dtype=torch.float32, device=x.device)
    lanes.launch(
        choose, programs, x, table, num, steps, values, places, keys, places[count:],
        SHARE=SHARE, TILE=TAKEN,
    )  # fmt: skip
    lanes.launch(
        pack, lanes.num_tiles(indices.numel(), BYTES, num), indices, table, num, steps, places, BYTES=BYTES
    )


def scatter(
    payloads: Tensor, num_payloads: int, table: Tensor, values: Tensor, factor: float, x: Tensor, /
) -> None:
    """x = the sum, in order, of all payloads' value * factor at their places, and 0 elsewhere; two launches.

    The host does not look at payloads: places outside their chunk are dropped, and nothing raises.
    """
    num, steps = table.numel() // 9, lanes.halvings(table.numel() // 9)
    nbytes, count = payloads.numel() // num_payloads, values.numel() // num_payloads
    places = torch.empty(values.numel(), dtype=torch.int32, device=x.device)
    lanes.launch(
        unpack, (triton.cdiv(count, SHARE), num_payloads), payloads, nbytes, table, num, steps, places,
        count, SHARE=SHARE, BITS=BITS,
    )  # fmt: skip
    lanes.launch(
        _scatter, lanes.num_tiles(x.numel(), TILE, num), x, table, num, steps, places, values, count,
        num_payloads, factor, TILE=TILE,
    )  # fmt: skip


@triton.jit(do_not_specialize=["num", "steps", "num_values", "num_payloads"])
def _scatter(x, table, num, steps, places, values, num_values, num_payloads, factor, TILE: tl.constexpr):
    """A program owns a tile of a run: 0, then the values of all payloads in their order."""
    run, first = lanes.tile_of(tl.program_id(0), table, num, steps, 0, 9, TILE)
    row = table + run * 9
    offset, group = tl.load(row), tl.load(row + 8)
    first *= TILE
    numel = tl.load(row + 1) * tl.load(row + 2) * group
    index = first + tl.arange(0, TILE)
    tl.store(x + offset + index, tl.zeros((TILE,), tl.float32), mask=index < numel)
    tl.debug_barrier()
    count = tl.load(row + 2) * tl.load(row + 3)
    place, value = places + tl.load(row + 7), values + tl.load(row + 7)
    for _ in range(num_payloads):
        begin = _lower(place, count, group, tl.cdiv(first, group))
        end = _lower(place, count, group, tl.cdiv(first + TILE, group))
        for item in range(begin, end, TILE):
            own = item + tl.arange(0, TILE)
            where = tl.load(place + own * group, mask=own < end, other=-1).to(tl.int64) * group
            fine = (own < end) & (where >= first) & (where < numel)
            _add(x + offset + where, value + own * group, factor, fine)
            if group == 2:
                _add(x + offset + where + 1, value + own * group + 1, factor, fine)
        tl.debug_barrier()  # the next payload's values are added by other threads
        place, value = place + num_values, value + num_values


@triton.jit
def _add(x, value, factor, fine):
    scaled = tl.load(value, mask=fine, other=0.0) * factor
    tl.store(x, tl.load(x, mask=fine, other=0.0) + scaled, mask=fine)


@triton.jit
def _lower(places, count, group, place):
    """How many of the ascending places are less than `place`."""
    low, high = count * 0, count
    while low < high:
        middle = (low + high) // 2
        less = tl.load(places + middle * group) < place
        low, high = tl.where(less, middle + 1, low), tl.where(less, high, middle)
    return low
