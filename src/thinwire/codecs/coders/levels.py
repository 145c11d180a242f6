"""Levels: numbers as small integers times a scale; with one scale for all ranks they add up exactly."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Context, Packer, Part
from thinwire.codecs.coders.gather import GatherPacker
from thinwire.codecs.coders.rows import Rows
from thinwire.errors import PlanError
from thinwire.kernels.base import SumKernels
from thinwire.kernels.sizes import ROW, digits_per_word
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Layout

MAX_SUM = 65535  # owners add in 16 bits


class Levels(ABC):
    """What a coder does to the rows of a lane: numbers are level * step, |level| <= top, step = scale / top.

    The codes of a granule (`rows.granule_rows` rows) fill `granule_bytes` bytes. Zero elements have level 0.
    """

    rows: Rows
    kernels: SumKernels
    top: int
    granule_bytes: int

    @abstractmethod
    def cut(self, rows: Rows) -> Levels:
        """The same for some of the rows."""

    @abstractmethod
    def measure(self, x: Tensor, words: Tensor) -> None:
        """The scale of every block as the bit pattern of a float (int32): NaN > Inf > numbers."""

    @abstractmethod
    def draw(self, x: Tensor, steps: Tensor, key: Key, codes: Tensor) -> None:
        """Rounds at random to levels and packs them."""

    @abstractmethod
    def add(self, payloads: Tensor, sum_digits: int, words: Tensor) -> None:
        """(ranks, bytes) of codes to sums: digits of base 2 * top * ranks + 1 in 32-bit words (int32)."""

    @abstractmethod
    def decode_own(self, payloads: Tensor, steps: Tensor, x: Tensor) -> None:
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
        self.max_words = self.rows.num_scales
        self.zero = levels.top * context.world
        self.sum_digits = digits_per_word(2 * self.zero + 1)

    def parts(self, count: int) -> list[Part]:
        return [
            Part(SharedPacker(self.name, self.levels.cut(rows), self.context), first, last)
            for rows, first, last in self.rows.cuts(count)
        ]

    def moved(self, base: int) -> Packer:
        return SharedPacker(self.name, self.levels.cut(self.rows.moved(base)), self.context)

    def maxima(self, x: Tensor, words: Tensor) -> None:
        self.levels.measure(x, words)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        self.levels.draw(x, agreed.view(torch.float32) / self.levels.top, key, payload)

    def merged_bytes(self, num_granules: int) -> int:
        return -(-num_granules * self.rows.granule_rows // self.sum_digits) * ROW * 4

    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        self.levels.add(payloads, self.sum_digits, sums.view(torch.int32))

    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        shards = sums.shape[0]
        rows_per_shard = -(-self.num_granules // shards) * self.rows.granule_rows
        words = sums.reshape(-1).view(torch.int32)
        steps = agreed.view(torch.float32) / self.zero
        self.levels.kernels.decode_sum(
            words, shards, rows_per_shard, self.zero, self.sum_digits, self.rows.table, steps, x
        )

    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        self.levels.decode_own(
            payload.unsqueeze(0), agreed.view(1, -1).view(torch.float32) / self.levels.top, x
        )


class OwnPacker(GatherPacker):
    """Every rank its own scales, sent behind its codes: payloads are decoded one by one."""

    def __init__(self, make: Callable[[Layout], Levels], layout: Layout, context: Context) -> None:
        self.make, self.levels = make, make(layout)
        self.code_bytes = self.levels.rows.num_granules * self.levels.granule_bytes
        self.used_bytes = self.code_bytes + 4 * self.levels.rows.num_scales
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> OwnPacker:
        return OwnPacker(self.make, layout, self.context)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        scales = payload[self.code_bytes : self.used_bytes].view(torch.int32)
        self.levels.measure(x, scales)
        self.levels.draw(x, scales.view(torch.float32) / self.levels.top, key, payload[: self.code_bytes])
        payload[self.used_bytes : self.granule_bytes] = 0

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        scales = payloads[:, self.code_bytes : self.used_bytes].contiguous().view(torch.float32)
        self.levels.decode_own(payloads, scales / (self.levels.top * payloads.shape[0]), x)


def max_world(top: int) -> int:
    """How many ranks' levels fit a sum."""
    return MAX_SUM // (2 * top)
