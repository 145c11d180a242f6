"""Streams: numbers of several pieces of a buffer end to end, with no room between them.

A program has a tile of the stream. Most tiles lie in one piece, and the program finds it once; the others
find the piece of every number. `starts` are the places in the stream at which the pieces begin.
"""

from __future__ import annotations

import triton
import triton.language as tl

from thinwire.kernels.triton.lanes import place_of


@triton.jit
def piece_of_tile(begin, tile, numel, starts, num, steps, STRIDE: tl.constexpr):
    """The piece at place `begin` (int64), and whether the whole tile lies in it."""
    own = place_of(begin, starts, num, steps, STRIDE)
    last = place_of(tl.minimum(begin + tile, numel) - 1, starts, num, steps, STRIDE)
    return own, (own == last) & (begin + tile <= numel)


@triton.jit
def pieces_of(place, starts, num, steps, STRIDE: tl.constexpr):
    """The pieces of places of the stream, and the places in their pieces."""
    own = place_of(place, starts, num, steps, STRIDE)
    return own, place - tl.load(starts + own * STRIDE)
