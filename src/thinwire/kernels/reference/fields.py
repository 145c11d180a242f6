"""Fields of a few bits in 32-bit little-endian words, in plain torch.

A granule has as few rows of 32 codes as fill whole words. Column j of it is one long number, row k taking its
bits `bits * k` and up; word p of that number is word 32 * p + j of the granule. See docs/wire.md.
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
