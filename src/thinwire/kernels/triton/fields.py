"""Fields of a few bits in 32-bit words (csrc/fields.h): column j of a granule is one long number.

Row k takes its bits BITS*k .. BITS*k + BITS - 1; word p of column j is word 32*p + j of the granule.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thinwire.kernels.triton.lanes import ROW


@triton.jit
def field_at(words, row, inside, BITS: tl.constexpr, FIELD_ROWS: tl.constexpr):
    """The codes (int32) of rows of a stream of whole granules; `row` counts from its start (int64)."""
    granule = row // FIELD_ROWS
    bit = (row - granule * FIELD_ROWS).to(tl.int32) * BITS
    word, used = bit // 32, bit % 32
    GRANULE_WORDS: tl.constexpr = BITS * FIELD_ROWS  # 32 columns of BITS * FIELD_ROWS bits
    place = (granule * GRANULE_WORDS + word * ROW)[:, None] + tl.arange(0, 32)[None, :]
    low = tl.load(words + place, mask=inside[:, None], other=0).to(tl.uint32, bitcast=True)
    code = low >> used[:, None].to(tl.uint32)
    if 32 % BITS != 0:
        over = used + BITS > 32
        high = tl.load(words + place + ROW, mask=(inside & over)[:, None], other=0)
        shift = tl.where(over, 32 - used, 0).to(tl.uint32)
        code = code | tl.where(over[:, None], high.to(tl.uint32, bitcast=True) << shift[:, None], 0)
    return (code & ((1 << BITS) - 1)).to(tl.int32)


@triton.jit
def joined(word, code, place, row, mask, BITS: tl.constexpr):
    """Puts the codes of a granule's row behind those of the rows before it; stores words that are full."""
    used = (row * BITS) & 31
    wide = code.to(tl.uint32)
    word = word | (wide << used)
    if used + BITS >= 32:
        tl.store(place + ((row * BITS) >> 5) * 32, word.to(tl.int32, bitcast=True), mask=mask)
        word = wide >> (32 - used)
        if used + BITS == 32:
            word = tl.zeros_like(word)
    return word
