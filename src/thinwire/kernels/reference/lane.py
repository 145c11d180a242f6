"""A lane in plain torch: rows of 32 elements, blocks of tensors, values spread over blocks, ordered sums.

The columns of a segment table are (offset, numel, row, scale, block, start), see csrc/lane.h.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.kernels.sizes import ROW

INF_BITS = 0x7F800000
CHUNK = 4096  # numbers of a sum that are added one after the other, and
_LANES = 16  # accumulators in it; both are part of the definition of a sum's bits


def blocks(values: Tensor, block: int) -> tuple[Tensor, ...]:
    """The elements that share a scale; block 0 is the whole tensor."""
    if block == 0:
        return (values,)
    return tuple(values[first : first + block] for first in range(0, values.numel(), block))


def max_bits(values: Tensor) -> int:
    """Largest |x| as a bit pattern: NaN > Inf > numbers."""
    return int((values.contiguous().view(torch.int32) & 0x7FFFFFFF).max()) if values.numel() else 0


def ordered_sum(values: Tensor) -> float:
    """A sum whose bits are defined, and whose chunks of 4096 numbers can be summed in parallel.

    In a chunk element i goes to accumulator i mod 16 in ascending order, and the accumulators are folded in
    halves. The sums of all chunks are summed likewise, until one number is left.

    >>> ordered_sum(torch.full((5000,), 0.5, dtype=torch.float64))
    2500.0
    """
    sums = _chunk_sums(values)
    while sums.numel() > 1:
        sums = _chunk_sums(sums)
    return float(sums)


def _chunk_sums(values: Tensor) -> Tensor:
    """Steps run one after the other on all chunks and lanes at once: the same order on every device."""
    size = CHUNK if values.numel() > CHUNK else _LANES
    padded = torch.nn.functional.pad(values, (0, -values.numel() % size))
    rows = padded.view(-(-values.numel() // CHUNK), -1, _LANES)
    lanes = torch.zeros_like(rows[:, 0])
    for step in range(rows.shape[1]):
        lanes = lanes + rows[:, step]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes.flatten()


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
