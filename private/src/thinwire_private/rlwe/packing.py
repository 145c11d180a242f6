"""Packing: a convolution as products of polynomials modulo X^N + 1 (Cheetah's, Huang et al. 2022).

1. Stride: the picture is split into phases; phase (f, g) has the pixels (s i + f, s j + g). Each is a channel
   of its own, and the convolution over all of them has stride 1 and taps at offsets d = (a - padding) // s.
2. Tiles: a picture that does not fit is cut into tiles of outputs; a tile's input has a border.
3. With rows of R coefficients and channels of A = R * rows, pixel (c, i, j) is coefficient c A + i R + j, tap
   (c, d, e) is coefficient O - c A - d R - e, so output (i, j) is coefficient O + i R + j of the product.
   Gaps of zeros between rows and channels are shared by what lies on either side of them.
4. All this needs M coefficients. Where several times M fit into N, a ciphertext has several pictures (or
   tiles), M apart, and a factor has several output channels, as far apart as all pictures of a ciphertext.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from math import ceil
from typing import Any

import numpy as np
from numpy.typing import NDArray

from thinwire_private.net.nodes import Conv, IntArray, Weighted
from thinwire_private.ot.primitives import Words, packed_bytes
from thinwire_private.rlwe.keys import Small, wide_bytes
from thinwire_private.rlwe.parameters import DEGREE, LOW_BITS, TOP_BITS, RlweParameters

Places = NDArray[np.uint32]


@dataclass(frozen=True)
class Axis:
    """One axis of a picture: its size, the taps along it, and how many outputs a tile has."""

    size: int
    kernel: int
    stride: int
    padding: int
    outputs: int
    tile: int

    @cached_property
    def taps(self) -> tuple[tuple[int, int], ...]:
        """(phase, offset) of every tap."""
        offsets = (a - self.padding for a in range(self.kernel))
        return tuple((offset % self.stride, offset // self.stride) for offset in offsets)

    @cached_property
    def phases(self) -> tuple[int, ...]:
        """The phases that a tap reads."""
        return tuple(sorted({phase for phase, _ in self.taps}))

    @property
    def first(self) -> int:
        """The smallest offset of a tap."""
        return min(offset for _, offset in self.taps)

    @property
    def last(self) -> int:
        """The largest offset of a tap."""
        return max(offset for _, offset in self.taps)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first output of every tile."""
        return tuple(range(0, self.outputs, self.tile))

    def pixels(self, start: int, phase: int | None = None) -> range:
        """The pixels of a phase that a tile reads, counted from its first output; None: of the longest."""
        size = ceil((self.size - (self.phases[0] if phase is None else phase)) / self.stride)
        return range(max(self.first, -start), min(self.tile - 1 + self.last, size - 1 - start) + 1)

    @cached_property
    def origin(self) -> int:
        """The first pixel that any tile has."""
        return min(self.pixels(start).start for start in self.starts)

    @cached_property
    def end(self) -> int:
        """The last pixel that any tile has."""
        return max(self.pixels(start).stop - 1 for start in self.starts)

    @cached_property
    def pitch(self) -> int:
        """Places per row: a tap that reads beside a row's pixels meets zeros and no other row's pixels."""
        ranges = [self.pixels(start) for start in self.starts]
        beyond = max(self.tile - 1 + self.last - pixels.start for pixels in ranges)
        before = max(pixels.stop - 1 - self.first for pixels in ranges)
        return max(beyond + 1, before + 1, self.tile)


@dataclass(frozen=True)
class Packing:
    """How a layer's batch lies in polynomials; the same at both parties.

    channels: of the picture; per_input: channels (with their phases) in a ciphertext; per_output: output
    channels in an answer; per_batch: pictures or tiles in a ciphertext.
    """

    channels: int
    outputs: int
    rows: Axis
    columns: Axis
    batch: int
    per_input: int = 1
    per_output: int = 1
    per_batch: int = 1

    @property
    def num_phases(self) -> int:
        """Channels that a channel becomes."""
        return len(self.rows.phases) * len(self.columns.phases)

    @property
    def tiles(self) -> list[tuple[int, int]]:
        """The first output of each tile."""
        return [(i, j) for i in self.rows.starts for j in self.columns.starts]

    @property
    def num_inputs(self) -> int:
        """Ciphertexts of one picture (or group of them)."""
        return ceil(self.channels * self.num_phases / self.per_input)

    @property
    def num_outputs(self) -> int:
        """Answers of one picture (or group of them)."""
        return ceil(self.outputs / self.per_output)

    @property
    def num_groups(self) -> int:
        """Groups of pictures or tiles that share ciphertexts."""
        return ceil(self.batch * len(self.tiles) / self.per_batch)

    @property
    def _area(self) -> int:
        return self.rows.pitch * self.columns.pitch

    @property
    def _origin(self) -> int:
        """O: no tap has a negative place."""
        last = self.rows.last * self.columns.pitch + self.columns.last
        return int((self.per_input - 1) * self._area + last)

    def _offset(self, rows: Any, columns: Any) -> Any:
        """Of numbers or of arrays of them."""
        return rows * self.columns.pitch + columns

    @cached_property
    def span(self) -> int:
        """M: products of pixels and taps lie less than M from every output that they do not belong to."""
        rows, columns = self.rows, self.columns
        last_pixel: int = (self.per_input - 1) * self._area
        last_pixel += self._offset(rows.end - rows.origin, columns.end - columns.origin)
        last_tap = self._origin - self._offset(rows.first, columns.first)
        first_output = self._origin - self._offset(rows.origin, columns.origin)
        last_output = first_output + self._offset(rows.tile - 1, columns.tile - 1)
        return 1 + int(max(last_pixel + last_tap - first_output, last_output))

    @property
    def fits(self) -> bool:
        """Whether all blocks of M fit into N."""
        return self.per_batch * self.per_output * self.span <= DEGREE

    def upload_bytes(self, k: int) -> int:
        """All ciphertexts, without their seeds."""
        return wide_bytes(self.num_groups * self.num_inputs, k)

    def download_bytes(self, width: int) -> int:
        """All answers."""
        low = packed_bytes(self.batch * self.outputs * self.rows.outputs * self.columns.outputs, LOW_BITS)
        return self.num_groups * self.num_outputs * packed_bytes(DEGREE, width + TOP_BITS) + low

    def _units(self, group: int) -> list[tuple[int, int, int]]:
        """(picture, first row, first column) of the pictures or tiles of a group."""
        tiles = self.tiles
        numbers = range(group * self.per_batch, min((group + 1) * self.per_batch, self.batch * len(tiles)))
        return [(number // len(tiles), *tiles[number % len(tiles)]) for number in numbers]

    def messages(self, pictures: Words, group: int) -> Words:
        """The plaintexts (num_inputs, N) of a group, from pictures (batch, C, H, W)."""
        polynomials = np.zeros((self.num_inputs, DEGREE), np.uint64)
        phases = [(f, g) for f in self.rows.phases for g in self.columns.phases]
        channels = np.arange(self.channels)
        for block, (picture, i0, j0) in enumerate(self._units(group)):
            for number, (f, g) in enumerate(phases):
                i, j = np.array(self.rows.pixels(i0, f)), np.array(self.columns.pixels(j0, g))
                if not i.size or not j.size:
                    continue
                row = (i0 + i) * self.rows.stride + f
                column = (j0 + j) * self.columns.stride + g
                values = pictures[picture][:, row[:, None], column]
                which, place = np.divmod(channels * self.num_phases + number, self.per_input)
                inside = self._offset(i[:, None] - self.rows.origin, j - self.columns.origin)
                at = block * self.span + place[:, None, None] * self._area + inside
                polynomials[which[:, None, None], at] = values
        return polynomials

    def answers(self, group: int, number: int) -> tuple[Places, IntArray]:
        """Coefficients of an answer that hold outputs, and their places in (outputs, batch * H' * W')."""
        first = self._origin - self._offset(self.rows.origin, self.columns.origin)
        channels = np.arange(number * self.per_output, min((number + 1) * self.per_output, self.outputs))
        size = self.rows.outputs * self.columns.outputs
        places, targets = [], []
        for block, (picture, i0, j0) in enumerate(self._units(group)):
            i = np.arange(min(self.rows.tile, self.rows.outputs - i0))[:, None]
            j = np.arange(min(self.columns.tile, self.columns.outputs - j0))
            at = first + block * self.span + self._offset(i, j)
            apart = (channels - channels[0]) * self.per_batch * self.span
            places.append((apart[:, None, None] + at).reshape(-1))
            flat = picture * size + (i0 + i) * self.columns.outputs + j0 + j
            targets.append((channels[:, None, None] * (self.batch * size) + flat).reshape(-1))
        return np.concatenate(places).astype(np.uint32), np.concatenate(targets)

    def num_places(self, group: int, number: int) -> int:
        """How many outputs an answer has."""
        channels = min(self.per_output, self.outputs - number * self.per_output)
        return channels * sum(
            min(self.rows.tile, self.rows.outputs - i0) * min(self.columns.tile, self.columns.outputs - j0)
            for _, i0, j0 in self._units(group)
        )

    def factors(self, taps: Small, number: int) -> Small:
        """The factors (num_inputs, N) of an answer, from `taps`."""
        rows, columns = self.rows, self.columns
        channels = np.arange(self.per_input)[:, None, None] * self._area
        down = np.arange(rows.first, rows.last + 1)[:, None] * columns.pitch
        across = np.arange(columns.first, columns.last + 1)
        apart = np.arange(self.per_output)[:, None, None, None] * (self.per_batch * self.span)
        at = (apart + self._origin - channels - down - across).reshape(-1)
        sign = np.where(at // DEGREE % 2, -1, 1).astype(np.int32)
        polynomials = np.zeros((self.num_inputs, DEGREE), np.int32)
        polynomials[:, at % DEGREE] = taps[number] * sign
        return polynomials

    def taps(self, weight: IntArray) -> Small:
        """Weights (K, C, h, w) as (num_outputs, num_inputs, taps of a factor), padded with zeros."""
        rows, columns = self.rows, self.columns
        height, width = rows.last - rows.first + 1, columns.last - columns.first + 1
        kinds = (self.num_outputs * self.per_output, self.channels, self.num_phases)
        spread = np.zeros((*kinds, height, width), np.int32)
        for a, (f, d) in enumerate(rows.taps):
            for b, (g, e) in enumerate(columns.taps):
                phase = rows.phases.index(f) * len(columns.phases) + columns.phases.index(g)
                spread[: self.outputs, :, phase, d - rows.first, e - columns.first] = weight[:, :, a, b]
        full = self.num_inputs * self.per_input
        flat = np.zeros((self.num_outputs, self.per_output, full, height, width), np.int32)
        merged = spread.reshape(self.num_outputs, self.per_output, -1, height, width)
        flat[:, :, : self.channels * self.num_phases] = merged
        split = flat.reshape(self.num_outputs, self.per_output, self.num_inputs, -1)
        return np.ascontiguousarray(split.transpose(0, 2, 1, 3)).reshape(
            self.num_outputs, self.num_inputs, -1
        )


def kernels(layer: Weighted) -> IntArray:
    """The weights as (K, C, h, w); a fully connected layer is a 1x1 convolution of one pixel."""
    assert layer.weight is not None
    return layer.weight if isinstance(layer, Conv) else layer.weight[:, :, None, None]


@cache
def cheapest(
    shape: tuple[int, ...], out: tuple[int, ...], window: tuple[int, int, int], batch: int, k: int, width: int
) -> Packing:
    """The packing of fewest bytes for pictures of `shape` and outputs of `out`; window: kernel, stride,
    padding."""
    found = list(_candidates(shape, out, window, batch))
    return min(found, key=lambda one: one.upload_bytes(k) + one.download_bytes(width))


def packing_of(layer: Weighted, batch: int, parameters: RlweParameters) -> Packing:
    """The cheapest packing of a layer."""
    shape, out, window = layer.taken[0].shape, layer.value.shape, (1, 1, 0)
    if isinstance(layer, Conv):
        window = (layer.kernel, layer.stride, layer.padding)
    else:
        shape, out = (layer.taken[0].size, 1, 1), (layer.value.size, 1, 1)
    return cheapest(shape, out, window, batch, parameters.k, parameters.l)


def _candidates(
    shape: tuple[int, ...], out: tuple[int, ...], window: tuple[int, int, int], batch: int
) -> Iterator[Packing]:
    """Packings that fit: the fewest tiles that do, and one more cut; all useful numbers of channels."""
    kernel, stride, padding = window
    tried = 0
    for cuts in range(1, max(out[1:]) + 1):
        rows, columns = (
            Axis(size, kernel, stride, padding, outputs, ceil(outputs / min(cuts, outputs)))
            for size, outputs in zip(shape[1:], out[1:], strict=True)
        )
        start = Packing(shape[0], out[0], rows, columns, batch)
        if start.fits:
            tried += 1
            yield from _filled(start)
        if tried == 2:
            return


def _filled(start: Packing) -> Iterator[Packing]:
    total, units = start.channels * start.num_phases, start.batch * len(start.tiles)
    for per_input in sorted({ceil(total / parts) for parts in range(1, total + 1)}):
        one = replace(start, per_input=per_input)
        room = DEGREE // one.span
        if not room:
            return
        for per_batch in sorted({min(units, room, size) for size in (1, 2, 4, 8, 16, 32, 64, room)}):
            per_output = min(start.outputs, room // per_batch)
            yield replace(one, per_batch=per_batch, per_output=per_output)
