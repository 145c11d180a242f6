"""Levels: values as small integers times a scale. With one scale for all ranks they add up exactly."""

from __future__ import annotations

import dataclasses
import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from thinwire.codecs.coder import Context, GatherPacker, Packer, Part
from thinwire.devices import HOST, quotient, sent
from thinwire.errors import CodecError, PlanError
from thinwire.kernels.base import SumKernels
from thinwire.kernels.sizes import ROW, digits_per_word
from thinwire.tensors import Key, Layout

RANDOM, NEAREST = "random", "nearest"
ROUNDINGS = (RANDOM, NEAREST)


@dataclass(frozen=True)
class Segment:
    """A tensor of the lane, or the run of its elements from `start` on; `row` is its first in the payload."""

    name: str
    offset: int
    numel: int
    row: int
    scale: int
    start: int = 0

    def rows(self, first: int, last: int) -> Segment:
        """The part of it in rows first..last of the payload, with rows counted from `first`."""
        skipped = max(0, first - self.row) * ROW
        stop = min(self.numel, (last - self.row) * ROW)
        row = max(first, self.row) - first
        return Segment(
            self.name, self.offset + skipped, stop - skipped, row, self.scale, self.start + skipped
        )


@dataclass(frozen=True)
class Rows:
    """Where each tensor lies: in the buffer, in the rows of the payload, and in the list of scales.

    Every tensor starts on a granule (`granule_rows` rows): what it becomes does not depend on its neighbours.
    `block` elements share a scale; 0 means a whole tensor.
    """

    segments: tuple[Segment, ...]
    num_rows: int
    num_scales: int
    granule_rows: int
    block: int
    device: torch.device = HOST  # where kernels read the table and the keys

    @classmethod
    def of(cls, layout: Layout, granule_rows: int, block: int, device: torch.device = HOST) -> Rows:
        """Empty tensors are left out: nothing to send, and no scale to agree on.

        >>> from thinwire.tensors import Spec
        >>> rows = Rows.of(Layout.packed([Spec("a", (33,)), Spec("b", (2, 300))]), granule_rows=8, block=512)
        >>> rows.num_rows, rows.num_scales, [segment.row for segment in rows.segments]
        (32, 3, [0, 8])
        """
        segments, row, scale = [], 0, 0
        for spec, offset in zip(layout.specs, layout.offsets, strict=True):
            if spec.numel == 0:
                continue
            segments.append(Segment(spec.key, offset, spec.numel, row, scale))
            row += -(-spec.numel // (ROW * granule_rows)) * granule_rows
            scale += -(-spec.numel // block) if block else 1
        return cls(tuple(segments), row, scale, granule_rows, block, device)

    @property
    def num_granules(self) -> int:
        return self.num_rows // self.granule_rows

    def cut(self, first: int, last: int) -> Rows:
        """Rows first..last (multiples of `granule_rows`) under the same scales."""
        inside = [s for s in self.segments if s.row < last and s.row + -(-s.numel // ROW) > first]
        rows = tuple(segment.rows(first, last) for segment in inside)
        return dataclasses.replace(self, segments=rows, num_rows=last - first)

    def cuts(self, count: int) -> list[tuple[Rows, int, int]]:
        """About `count` cuts that together are all rows, with their elements first..last."""
        step = max(1, -(-self.num_granules // count)) * self.granule_rows
        ends = [*range(step, self.num_rows, step), self.num_rows] if self.num_rows else [0]
        firsts = [0, *ends[:-1]]
        return [
            (self.cut(first, last), self._elements_before(first), self._elements_before(last))
            for first, last in zip(firsts, ends, strict=True)
        ]

    def moved(self, base: int) -> Rows:
        """The same rows of a buffer that begins at element `base` of this one."""
        return dataclasses.replace(
            self, segments=tuple(dataclasses.replace(s, offset=s.offset - base) for s in self.segments)
        )

    def between(self, first: int, last: int) -> Rows:
        """The rows of the elements first..last, counted end to end: both begin a granule, or are the end."""
        return self.cut(self._row_of(first), self._row_of(last))

    @property
    def first_offset(self) -> int:
        """Where the first element lies in the buffer."""
        return self.segments[0].offset if self.segments else 0

    def _row_of(self, element: int) -> int:
        before = 0
        for s in self.segments:
            if element < before + s.numel:
                return s.row + (element - before) // ROW
            before += s.numel
        return self.num_rows

    def _elements_before(self, row: int) -> int:
        return sum(min(s.numel, max(0, row - s.row) * ROW) for s in self.segments)

    @functools.cached_property
    def table(self) -> Tensor:
        """The segments as kernels take them, six columns each (csrc/lane.h)."""
        columns = [[s.offset, s.numel, s.row, s.scale, self.block, s.start] for s in self.segments]
        return sent(torch.tensor(columns, dtype=torch.int64).flatten(), self.device)

    @functools.cached_property
    def roots(self) -> Tensor:
        """sqrt(elements) of every block, as IEEE 754 rounds it."""
        blocks = [self.block or s.numel for s in self.segments]
        counts = [
            min(block, s.numel - first)
            for s, block in zip(self.segments, blocks, strict=True)
            for first in range(0, s.numel, block)
        ]
        roots = np.sqrt(np.array(counts, dtype=np.float64)).astype(np.float32)
        return sent(torch.from_numpy(roots), self.device)

    def key_words(self, key: Key, rounding: str = RANDOM) -> Tensor:
        """The two key words of every tensor, as int32.

        None where values go to the nearest level, which is how kernels know it.
        """
        if rounding != RANDOM:
            return torch.empty(0, dtype=torch.int32, device=self.device)
        words = [word for segment in self.segments for word in key.words(segment.name)]
        made = torch.tensor(words, dtype=torch.int64).to(torch.int32)
        return made if self.device == HOST else sent(made, self.device)


def read_block(text: str) -> int:
    """Reads the option `block`: elements that share a scale."""
    return 0 if text == "layer" else int(text)


def show_block(block: int) -> str:
    return "layer" if block == 0 else str(block)


BLOCK_RULE = f'"layer", or a multiple of {ROW} elements'


CUT = 20480  # elements: whole granules of every coder of levels, whole blocks of every rotation


def cut_points(numels: Iterable[int]) -> list[int]:
    """Where tensors of these sizes, end to end, may be cut: at their starts, and every CUT elements.

    >>> cut_points([50_000, 3, 21_000])
    [0, 20480, 40960, 50000, 50003, 70483]
    """
    points: list[int] = []
    first = 0
    for numel in numels:
        points += range(first, first + numel, CUT)
        first += numel
    return points


MAX_SUM = 65535  # owners add in 16 bits
ROUNDING_RULE, STEP_RULE = '"random" or "nearest"', 'a positive number of standard deviations, or "off"'


class Spaced(Protocol):
    """What a coder has to say of its levels; `step` is in standard deviations of a block over all ranks."""

    @property
    def rounding(self) -> str: ...

    @property
    def step(self) -> float: ...

    @property
    def unbiased(self) -> bool: ...

    @property
    def scales(self) -> str: ...


def check_step(name: str, coder: Spaced) -> None:
    """Refuses a step that is none, or one beside scales that each rank has of its own."""
    if not coder.step > 0:
        raise CodecError(f"{name}: step={coder.step:g} must be positive; use step=off for a measured scale")
    if math.isfinite(coder.step) and coder.scales == "own":
        raise CodecError(
            f"{name}: step= counts in a standard deviation that all ranks share: use scales=shared"
        )


def gain_of(coder: Spaced, top: int) -> float:
    """E[y Q(y)] of a Gaussian of variance 1: what is left of it, to be divided out; 1 if it stays.

    The nearest level is above k with probability P(y > (k + 1/2) step), and E[y; y > t] = phi(t). At random,
    nothing is lost but what lies beyond the top level.
    """
    if not coder.unbiased or math.isinf(coder.step):
        return 1.0
    if coder.rounding == RANDOM:
        return math.erf(top * coder.step / math.sqrt(2))
    edges = [(level - 0.5) * coder.step for level in range(1, top + 1)]
    return 2 * coder.step * sum(math.exp(-edge * edge / 2) / math.sqrt(2 * math.pi) for edge in edges)


class Levels(ABC):
    """What a coder does to the rows of a lane: numbers are level * step, |level| <= top, step = scale / top.

    The codes of a granule (`rows.granule_rows` rows) fill `granule_bytes` bytes. Zero elements have level 0.
    """

    rows: Rows
    kernels: SumKernels
    top: int
    granule_bytes: int
    fixed_scale: float | None = None  # of values that come in units of sigma: nothing is measured
    gain: float = 1.0  # what rounding leaves of the values, divided out when they are decoded

    @abstractmethod
    def cut(self, rows: Rows) -> Levels:
        """The same for some of the rows."""

    @abstractmethod
    def measure(self, x: Tensor, words: Tensor) -> None:
        """The scale of every block as the bit pattern of a float (int32): NaN > Inf > numbers."""

    @abstractmethod
    def draw(self, x: Tensor, steps: Tensor, key: Key, codes: Tensor) -> None:
        """Rounds to levels, at random or to the nearest, and packs them."""

    @abstractmethod
    def add(self, payloads: Tensor, sum_digits: int, words: Tensor) -> None:
        """(ranks, bytes) of codes to sums: digits of base 2 * top * ranks + 1 in 32-bit words (int32)."""

    @abstractmethod
    def decode_local(self, payloads: Tensor, steps: Tensor, x: Tensor) -> None:
        """(ranks, bytes) of codes, maybe with more bytes behind, and (ranks, scales) of steps to the sum of
        level * step in rank order."""


class SharedPacker(Packer):
    """One scale for all ranks: levels add up exactly, in words of base 2 * top * N + 1."""

    def __init__(self, name: str, levels: Levels, context: Context) -> None:
        most = max_world(levels.top)
        if context.world > most:
            raise PlanError(
                f"{name} adds up at most {most} workers, not {context.world}: use fewer levels or scales=own"
            )
        self.name, self.levels, self.rows, self.context = name, levels, levels.rows, context
        self.granule_bytes = levels.granule_bytes
        self.num_granules = self.rows.num_granules
        self.max_words = self.rows.num_scales if levels.fixed_scale is None else 0
        self.zero = levels.top * context.world
        self._top, self._sum, self._own = (  # divisors on the device: see `devices.quotient`
            torch.full((), by, dtype=torch.float32, device=context.device)
            for by in (levels.top, levels.gain * self.zero, levels.gain * levels.top)
        )
        self.sum_digits = digits_per_word(2 * self.zero + 1)

    @functools.cached_property
    def _fixed_scales(self) -> Tensor:
        scale = self.levels.fixed_scale or 0.0
        return torch.full((self.rows.num_scales,), scale, device=self.context.device)

    @functools.cached_property
    def own_steps(self) -> Tensor:
        """Between the levels of one rank, where scales are fixed."""
        return self._fixed_scales / self._top

    @functools.cached_property
    def sum_steps(self) -> Tensor:
        """What one level of the sum is of the mean, where scales are fixed."""
        return self._fixed_scales / self._sum

    def parts(self, count: int) -> list[Part]:
        return [
            Part(SharedPacker(self.name, self.levels.cut(rows), self.context), first, last)
            for rows, first, last in self.rows.cuts(count)
        ]

    def cut_points(self) -> list[int]:
        return cut_points(s.numel for s in self.rows.segments)

    def span(self, first: int, last: int) -> Packer:
        rows = self.rows.between(first, last)
        return SharedPacker(self.name, self.levels.cut(rows.moved(rows.first_offset)), self.context)

    def shards(self, count: int) -> list[Packer]:
        size = self.rows.num_rows // count
        cuts = [self.rows.cut(size * shard, size * (shard + 1)) for shard in range(count)]
        return [SharedPacker(self.name, self.levels.cut(rows), self.context) for rows in cuts]

    def moved(self, base: int) -> Packer:
        return SharedPacker(self.name, self.levels.cut(self.rows.moved(base)), self.context)

    def maxima(self, x: Tensor, words: Tensor) -> None:
        if self.max_words:
            self.levels.measure(x, words)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        steps = shared.view(torch.float32) / self._top if self.max_words else self.own_steps
        self.levels.draw(x, steps, key, payload)

    def merged_bytes(self, num_granules: int) -> int:
        return -(-num_granules * self.rows.granule_rows // self.sum_digits) * ROW * 4

    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        self.levels.add(payloads, self.sum_digits, sums.view(torch.int32))

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        shards = sums.shape[0]
        rows_per_shard = -(-self.num_granules // shards) * self.rows.granule_rows
        words = sums.reshape(-1).view(torch.int32)
        steps = shared.view(torch.float32) / self._sum if self.max_words else self.sum_steps
        self.levels.kernels.decode_sum(
            words, shards, rows_per_shard, self.zero, self.sum_digits, self.rows.table, steps, x
        )

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        steps = (shared.view(torch.float32) if self.max_words else self._fixed_scales) / self._own
        self.levels.decode_local(payload.unsqueeze(0), steps.view(1, -1), x)


class OwnPacker(GatherPacker):
    """Every rank its own scales, sent behind its codes: payloads are decoded one by one."""

    def __init__(self, make: Callable[[Layout], Levels], layout: Layout, context: Context) -> None:
        self.make, self.levels = make, make(layout)
        self.code_bytes = self.levels.rows.num_granules * self.levels.granule_bytes
        self.used_bytes = self.code_bytes + 4 * self.levels.rows.num_scales
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> OwnPacker:
        return OwnPacker(self.make, layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        scales = payload[self.code_bytes : self.used_bytes].view(torch.int32)
        self.levels.measure(x, scales)
        steps = quotient(scales.view(torch.float32), self.levels.top)
        self.levels.draw(x, steps, key, payload[: self.code_bytes])
        payload[self.used_bytes : self.granule_bytes].zero_()

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        scales = payloads[:, self.code_bytes : self.used_bytes].contiguous().view(torch.float32)
        self.levels.decode_local(payloads, quotient(scales, self.levels.top * payloads.shape[0]), x)


def max_world(top: int) -> int:
    """How many ranks' levels fit a sum."""
    return MAX_SUM // (2 * top)
