"""Sums of integers in 32-bit words, in plain torch: several digits of a base in a word, kept as a fraction.

Digit k of word j of a pack is element j of the pack's row k, the leading digit first. See docs/wire.md.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.kernels.reference.lane import scatter_rows
from thinwire.kernels.sizes import ROW


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
