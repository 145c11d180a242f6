"""The sign coder: one bit an element and two values a block (1-bit SGD)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Coder, Context, GatherPacker, Merge, Packer, unit_size
from thinwire.codecs.levels import BLOCK_RULE, Rows, read_block, show_block
from thinwire.devices import quotient
from thinwire.errors import CodecError
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows
from thinwire.tensors import Key, Layout
from thinwire.texts import START_RULE, check_start, one_of, option


@dataclass(frozen=True)
class Matrix:
    """A tensor as rows (dimension 0) and columns (the rest); a vector is one column."""

    where: slice  # in the buffer
    shape: tuple[int, int]
    values: slice  # of its columns, among those of all tensors

    def of(self, x: Tensor) -> Tensor:
        return x[self.where].view(self.shape)


class ColumnSignPacker(GatherPacker):
    """Bits as with block=layer, then the values: for every column that of bit 0 and that of bit 1, or one."""

    def __init__(self, scaled: bool, layout: Layout, context: Context) -> None:
        self.scaled = scaled
        self.rows = Rows.of(layout, field_rows(bits=1), 0, context.tables)
        self.matrices = _matrices(layout)
        self.num_values = self.matrices[-1].values.stop if self.matrices else 0
        self.bit_bytes = self.rows.num_granules * field_granule_bytes(bits=1)
        self.used_bytes = self.bit_bytes + self.num_values * (4 if scaled else 8)
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> ColumnSignPacker:
        return ColumnSignPacker(self.scaled, layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        bits, values = payload[: self.bit_bytes], payload[self.bit_bytes : self.used_bytes]
        payload[self.used_bytes : self.granule_bytes].zero_()
        unused = torch.empty(2, self.rows.num_scales, dtype=torch.float32, device=x.device)
        self.context.kernels.sign.encode(x, self.rows.table, self.scaled, bits, unused[0], unused[1])
        both = [_values_of(matrix.of(x), self.scaled) for matrix in self.matrices]
        if both:
            values.view(torch.float32).copy_(torch.cat(both).flatten())

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count, bit = payloads.shape[0], torch.empty_like(x)
        zeros = torch.zeros(self.rows.num_scales, dtype=torch.float32, device=x.device)
        for rank, payload in enumerate(payloads):
            values = quotient(payload[self.bit_bytes : self.used_bytes].clone().view(torch.float32), count)
            self.context.kernels.sign.decode(payload, 1, self.rows.table, zeros, zeros + 1, bit)
            for matrix in self.matrices:
                low, high = self._both(values, matrix)
                one = torch.where(matrix.of(bit) == 1, high, low)
                total = matrix.of(x)
                total.copy_(one) if rank == 0 else total.add_(one)

    def _both(self, values: Tensor, matrix: Matrix) -> tuple[Tensor, Tensor]:
        """What the bits 0 and 1 of every column stand for; NaN has one bit pattern everywhere."""
        if not self.scaled:
            low, high = values.view(-1, 2)[matrix.values].unbind(1)
            return low, high
        high = values[matrix.values]
        return torch.where(high.isnan(), high, -high), high


def _matrices(layout: Layout) -> list[Matrix]:
    """Those of all tensors that are not empty."""
    found, first = [], 0
    for spec, where in zip(layout.specs, layout.slices, strict=True):
        if spec.numel:
            rows = spec.shape[0] if len(spec.shape) > 1 else spec.numel
            columns = spec.numel // rows
            found.append(Matrix(where, (rows, columns), slice(first, first + columns)))
            first += columns
    return found


def _values_of(matrix: Tensor, scaled: bool) -> Tensor:
    """(columns, 2): the means of the entries with bit 0 and with bit 1; or (columns, 1): |x|_1 / n."""
    up = matrix >= 0
    positive = _sums(torch.where(up, matrix, 0.0).double())
    negative = _sums(torch.where(up, 0.0, matrix).double())
    if scaled:
        return _means(positive - negative, torch.full_like(positive, len(matrix))).unsqueeze(1)
    num_up = up.sum(0).double()
    return torch.stack([_means(negative, len(matrix) - num_up), _means(positive, num_up)], 1)


def _means(totals: Tensor, counts: Tensor) -> Tensor:
    """0 of nothing; what is not finite becomes one NaN."""
    means = torch.where(counts > 0, totals / counts.clamp(min=1), 0.0).float()
    return torch.where(means.isfinite(), means, math.nan)


def _sums(terms: Tensor) -> Tensor:
    """Of every column, in an order that is defined: the lower half of the rows is added to the upper one.

    >>> _sums(torch.tensor([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])).tolist()
    [9.0, 12.0]
    """
    while len(terms) > 1:
        half = (len(terms) + 1) // 2
        upper = terms[:half].clone()
        upper[: len(terms) - half] += terms[half:]
        terms = upper
    return terms[0]


COLUMN = -1


def _read_block(text: str) -> int:
    return COLUMN if text == "column" else read_block(text)


def _show_block(block: int) -> str:
    return "column" if block == COLUMN else show_block(block)


@dataclass(frozen=True)
class Sign(Coder):
    """1-bit SGD, for each block of `block` elements (or each "column", or "layer", a tensor) of worker i:

    1. bit_k = p_k >= 0
    2. values="mean": two numbers, the means of the elements with bit 1 and with bit 0 (Seide et al.)
       values="scaled": one number, +-|p|_1 / n (scaled sign)
       values="rms": one number, +-|p|_2 / sqrt(n) (1-bit Adam; longer than p, so only with error feedback)
    3. q_k = the number that belongs to bit_k; the mean over workers is the mean of their q

    A column is what has the same place in all rows of a tensor's matrix (dimension 0 times the rest): the
    paper's blocks. Biased, so what is not sent is kept for the next step: feedback "residual", p = g + e,
    e = p - q. `start`: steps that travel uncompressed before. With "scaled", |p - q|^2 =
    (1 - |p|_1^2 / (n |p|^2)) |p|^2.
    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014.
    """

    merge = Merge.GATHER
    feedback = "residual"

    values: str = option("mean", one_of("mean", "scaled", "rms"), '"mean", "scaled" or "rms"')
    block: int = option(1 << 16, _read_block, f'"column", {BLOCK_RULE}', _show_block)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if self.block != COLUMN and (self.block < 0 or self.block % ROW):
            raise CodecError(f"sign: block={self.block} must be a multiple of {ROW}, or layer, or column")
        if self.block == COLUMN and self.values == "rms":
            raise CodecError(
                "sign: values=rms is for blocks, not for columns: use values=scaled, or block=layer"
            )
        check_start("sign", self.start)

    @property
    def dense_steps(self) -> int:
        return self.start

    @property
    def cuts_anywhere(self) -> bool:
        return self.block != COLUMN

    def bind(self, layout: Layout, context: Context) -> Packer:
        if self.block == COLUMN:
            return ColumnSignPacker(self.values == "scaled", layout, context)
        return SignPacker(self, layout.units(unit_size(self.block)), context)


class SignPacker(GatherPacker):
    """Bits, then the values: for every block the one for bit 0 and the one for bit 1, or only the latter."""

    def __init__(self, coder: Sign, layout: Layout, context: Context) -> None:
        self.coder, self.scaled = coder, coder.values != "mean"
        self.rows = Rows.of(layout, field_rows(bits=1), coder.block, context.tables)
        self.bit_bytes = self.rows.num_granules * field_granule_bytes(bits=1)
        self.used_bytes = self.bit_bytes + self.rows.num_scales * (4 if self.scaled else 8)
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> SignPacker:
        return SignPacker(self.coder, layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        both = self.context.room("values", 2, self.rows.num_scales)
        bits, values = payload[: self.bit_bytes], payload[self.bit_bytes : self.used_bytes]
        payload[self.used_bytes : self.granule_bytes].zero_()
        self.context.kernels.sign.encode(x, self.rows.table, self.scaled, bits, both[0], both[1])
        if self.coder.values == "rms":
            norms = torch.empty(self.rows.num_scales, dtype=torch.int32, device=x.device)
            self.context.kernels.qsgd.scales(x, self.rows.table, True, norms)
            both[1] = norms.view(torch.float32) / self.rows.roots.to(x.device)
        sent = both[1:] if self.scaled else both
        values.view(torch.float32).view(self.rows.num_scales, sent.shape[0]).copy_(sent.T)

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count = payloads.shape[0]
        sent = payloads[:, self.bit_bytes : self.used_bytes].view(torch.float32)
        low, high = self.context.room("values", 2, count, self.rows.num_scales)
        divisor = self.context.room("count", 1).fill_(count)  # a tensor: see `devices.quotient`
        if self.scaled:
            torch.div(sent, divisor, out=high)
            torch.where(high.isnan(), high, -high, out=low)  # NaN has one bit pattern everywhere
        else:
            torch.div(sent[:, 0::2], divisor, out=low)
            torch.div(sent[:, 1::2], divisor, out=high)
        self.context.kernels.sign.decode(
            payloads.reshape(-1), count, self.rows.table, low.flatten(), high.flatten(), x
        )
