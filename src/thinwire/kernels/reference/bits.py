"""A lane in plain torch: rows of 32 elements, blocks of tensors, values spread over blocks, ordered sums.

The columns of a segment table are (offset, numel, row, scale, block, start), see csrc/lane.h.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows


def pack_fields(codes: Tensor, bits: int) -> Tensor:
    """Codes (int64, whole granules, end to end) to bytes."""
    rows = codes.view(codes.numel() // (field_rows(bits) * ROW), field_rows(bits), ROW)
    words = torch.zeros(
        rows.shape[0], bits * rows.shape[1] // 32, ROW, dtype=torch.int64, device=codes.device
    )
    for k in range(rows.shape[1]):
        word, used = divmod(bits * k, 32)
        words[:, word] |= (rows[:, k] << used) & 0xFFFFFFFF
        if used + bits > 32:
            words[:, word + 1] |= rows[:, k] >> (32 - used)
    signed = torch.where(words >= 1 << 31, words - (1 << 32), words)
    return signed.to(torch.int32).flatten().view(torch.uint8)


def unpack_fields(payload: Tensor, bits: int) -> Tensor:
    """Bytes of whole granules to codes (int64), end to end."""
    rows, granules = field_rows(bits), payload.numel() // field_granule_bytes(bits)
    if granules == 0:
        return payload.new_empty(0, dtype=torch.int64)
    words = payload.view(torch.int32).view(granules, bits * rows // 32, ROW).to(torch.int64) & 0xFFFFFFFF
    codes = []
    for k in range(rows):
        word, used = divmod(bits * k, 32)
        code = words[:, word] >> used
        if used + bits > 32:
            code = code | (words[:, word + 1] << (32 - used))
        codes.append(code & ((1 << bits) - 1))
    return torch.stack(codes, dim=1).flatten()


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


def pack_sums(sums: Tensor, base: int, sum_digits: int, words: Tensor) -> None:
    """Rows of 32 sums, 0 .. base - 1, to words of `sum_digits` digits."""
    padded = torch.nn.functional.pad(sums, (0, 0, 0, -sums.shape[0] % sum_digits))
    value = torch.zeros(padded.shape[0] // sum_digits, ROW, dtype=torch.int64, device=sums.device)
    for k in range(sum_digits):
        value = value * base + padded.view(-1, sum_digits, ROW)[:, k]
    words.copy_(_fraction32(value, base**sum_digits).flatten())


def decode_sum(
    words: Tensor,
    num_shards: int,
    rows_per_shard: int,
    zero: int,
    sum_digits: int,
    table: Tensor,
    steps: Tensor,
    x: Tensor,
) -> None:
    """Unpacks sums, 0 .. 2 * zero, and scales them: x = (digit - zero) * step."""
    fraction = words.view(num_shards, -1, 1, ROW).to(torch.int64) & 0xFFFFFFFF
    planes = []
    for _ in range(sum_digits):
        fraction = fraction * (2 * zero + 1)
        planes.append((fraction >> 32) - zero)
        fraction = fraction & 0xFFFFFFFF
    rows = torch.cat(planes, dim=2).flatten(1, 2)[:, :rows_per_shard].flatten()
    scatter_rows(rows, table, steps, x)


def _fraction32(value: Tensor, limit: int) -> Tensor:
    """The word floor(value * 2**32 / limit) + 1 as int32, by two 16-bit steps of long division.

    Modulo 2**32: a damaged payload, whose sums are no digits, gives the same wrong words everywhere.
    """
    value = value & 0xFFFFFFFF
    high, rest = (value << 16) // limit, (value << 16) % limit
    word = ((high << 16) + (rest << 16) // limit + 1) & 0xFFFFFFFF
    return torch.where(word >= 1 << 31, word - (1 << 32), word).to(torch.int32)
