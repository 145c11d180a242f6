"""A lane in plain torch: rows of 32 elements, blocks of tensors, values spread over blocks, ordered sums.

The columns of a segment table are (offset, numel, row, scale, block, start), see csrc/lane.h.
"""

from __future__ import annotations

import torch
from torch import Tensor

ROW = 32
INF_BITS = 0x7F800000
_LANES = 16  # accumulators of sums in float64; part of the definition of their bits


def blocks(values: Tensor, block: int) -> tuple[Tensor, ...]:
    """The elements that share a scale; block 0 is the whole tensor."""
    if block == 0:
        return (values,)
    return tuple(values[first : first + block] for first in range(0, values.numel(), block))


def max_bits(values: Tensor) -> int:
    """Largest |x| as a bit pattern: NaN > Inf > numbers."""
    return int((values.contiguous().view(torch.int32) & 0x7FFFFFFF).max()) if values.numel() else 0


def ordered_sum(values: Tensor) -> float:
    """Element i goes to accumulator i mod 16 in ascending order; the accumulators are folded in halves."""
    padded = torch.nn.functional.pad(values, (0, -values.numel() % _LANES))
    lanes = padded.view(-1, _LANES).cumsum(0)[-1]
    while lanes.numel() > 1:
        half = lanes.numel() // 2
        lanes = lanes[:half] + lanes[half:]
    return float(lanes)


def spread(per_block: Tensor, segment: list[int]) -> Tensor:
    """One value per element of a segment (or one for all) from one value per block of its tensor."""
    _, numel, _, scale, block, start = segment
    if block == 0:
        return per_block[scale]
    first, last = start // block, -(-(start + numel) // block)
    values = per_block[scale + first : scale + last].repeat_interleave(block)
    return values[start - first * block :][:numel]


def scatter_rows(rows: Tensor, table: Tensor, steps: Tensor, x: Tensor) -> None:
    """Levels in rows, all tensors end to end, to the tensors of x: x = level * step."""
    for segment in table.view(-1, 6).tolist():
        offset, numel, row = segment[:3]
        level = rows[row * ROW : row * ROW + numel].to(torch.float32)
        x[offset : offset + numel] = level * spread(steps, segment)
