"""A lane on a GPU: which tensor a program works on, draws, scales of rows, and the one way to start a kernel.

Grids follow from sizes that the host knows (shapes of tensors), never from what a table says. Tensor s begins
at `place` s of the lane (rows, or numbers), so its tiles of `unit` places can begin at tile
place_s // unit + s: between two tensors there is then always room for all tiles of the first, and

    floor(places / unit) + (number of tensors)

programs are enough for any table. A program looks for its tensor in the table, by halves, once.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

ROW = tl.constexpr(32)
INF = tl.constexpr(float("inf"))
INF_BITS = tl.constexpr(0x7F800000)
NAN_BITS = tl.constexpr(0x7FC00000)
LARGEST = tl.constexpr(3.4028234663852886e38)
UNIT24 = tl.constexpr(2.0**-24)
WHOLE = tl.constexpr(1 << 30)  # rows: more than a tile has
NONE = tl.constexpr(1 << 40)  # tiles: more than a tensor has


def launch(
    kernel: Any, grid: int | tuple[int, int], *args: Any, num_warps: int = 4, **constants: Any
) -> None:
    """Starts programs, if there are any. No fused multiply-adds: they round once where others round twice.

    Tensors that lie elsewhere (tables made on the host) are brought to the device of the first one.
    """
    sizes = (grid,) if isinstance(grid, int) else grid
    if not all(sizes):
        return
    device = args[0].device
    here = [a.to(device) if isinstance(a, Tensor) and a.device != device else a for a in args]
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        kernel[sizes](*here, **constants, num_warps=num_warps, enable_fp_fusion=False)


def num_tiles(places: int, unit: int, num_tensors: int) -> int:
    """Programs that are enough for tensors in that many places, whatever their table says."""
    return places // unit + num_tensors if num_tensors else 0


def halvings(count: int) -> int:
    """Steps of a search by halves among `count`."""
    return count.bit_length()


@triton.jit
def tensor_of(tile, table, num, steps, COLUMN: tl.constexpr, COLUMNS: tl.constexpr, UNIT: tl.constexpr):
    """The last tensor whose tiles begin at `tile` or before it."""
    low, high = tile * 0, tile * 0 + num
    for _ in range(steps):
        middle = (low + high) // 2
        first = tl.load(table + middle * COLUMNS + COLUMN) // UNIT + middle
        low, high = tl.where(first <= tile, middle, low), tl.where(first <= tile, high, middle)
    return low


@triton.jit
def tile_of(tile, table, num, steps, COLUMN: tl.constexpr, COLUMNS: tl.constexpr, UNIT: tl.constexpr):
    """The tensor of a tile, and which of its tiles that is; before the first tensor NONE, behind its end."""
    own = tensor_of(tile, table, num, steps, COLUMN, COLUMNS, UNIT)
    first = (tile - (tl.load(table + own * COLUMNS + COLUMN) // UNIT + own)).to(tl.int64)
    return own, tl.where(first < 0, NONE, first)


@triton.jit
def place_of(place, places, num, steps, STRIDE: tl.constexpr):
    """The last of `num` ascending places, every STRIDE-th number, that is `place` or before it."""
    low, high = (place * 0).to(tl.int32), (place * 0).to(tl.int32) + num
    for _ in range(steps):
        middle = (low + high) // 2
        before = tl.load(places + middle * STRIDE) <= place
        low, high = tl.where(before, middle, low), tl.where(before, high, middle)
    return low


@triton.jit
def random24(counter, k0, k1):
    """24 random bits of a counter under a key (kernels/reference/hashing.py)."""
    h = counter.to(tl.uint32) ^ k0.to(tl.uint32, bitcast=True)
    h = (h ^ (h >> 16)) * 0x7FEB352D
    h = h ^ k1.to(tl.uint32, bitcast=True)
    h = (h ^ (h >> 15)) * 0x846CA68B
    h = h ^ (h >> 16)
    return (h >> 8).to(tl.int32)


@triton.jit
def key_of(keys, tensor, DRAWN: tl.constexpr):
    """The two key words of a tensor; any, if nothing is drawn."""
    k0, k1 = tl.full((), 0, tl.int32), tl.full((), 0, tl.int32)
    if DRAWN:
        k0, k1 = tl.load(keys + 2 * tensor), tl.load(keys + 2 * tensor + 1)
    return k0, k1


@triton.jit
def scale_of(rows, first, scale, block, start):
    """Which scale rows (int32, counted from the segment's row `first`) have: a division for each row."""
    whole = block == 0
    before = start // ROW + first
    per_block = tl.where(whole, WHOLE, block // ROW)
    index = tl.where(whole, 0, before // per_block)
    rest = tl.where(whole, 0, before - index * per_block).to(tl.int32)
    return scale + index + (rest + rows) // per_block.to(tl.int32)


@triton.jit
def below_times_unit(scale):
    """The float below a scale, times 2**-24; infinite where the scale is 0 or no number."""
    below = (scale.to(tl.int32, bitcast=True) - 1).to(tl.float32, bitcast=True) * UNIT24
    return tl.where(scale > 0, below, INF)


@triton.jit
def aligned(offset):
    """The offset, known to the compiler as a multiple of 4: what lies there is loaded 128 bits at a time."""
    return offset // 4 * 4
