"""The sign coder: one bit an element and two values a block (1-bit SGD)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coders.base import Coder, Context, Merge, Packer
from thinwire.codecs.coders.gather import GatherPacker, unit_size
from thinwire.codecs.coders.rows import BLOCK_RULE, Rows, read_block, show_block
from thinwire.codecs.coders.sign_columns import ColumnSignPacker
from thinwire.errors import CodecError
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Layout
from thinwire.texts.options import START_RULE, check_start, one_of, option

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
    3. q_k = the number that belongs to bit_k; the mean over workers is the mean of their q

    A column is what has the same place in all rows of a tensor's matrix (dimension 0 times the rest): the
    paper's blocks. Biased, so what is not sent is kept for the next step: memory "residual", p = g + e,
    e = p - q. `start`: steps that travel uncompressed before. With "scaled", |p - q|^2 =
    (1 - |p|_1^2 / (n |p|^2)) |p|^2.
    Seide et al., "1-Bit Stochastic Gradient Descent", Interspeech 2014.
    """

    merge = Merge.GATHER
    memory = "residual"

    values: str = option("mean", one_of("mean", "scaled"), '"mean" or "scaled"')
    block: int = option(1 << 16, _read_block, f'"column", {BLOCK_RULE}', _show_block)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if self.block != COLUMN and (self.block < 0 or self.block % ROW):
            raise CodecError(f"sign: block={self.block} must be a multiple of {ROW}, or layer, or column")
        check_start("sign", self.start)

    @property
    def dense_steps(self) -> int:
        return self.start

    def bind(self, layout: Layout, context: Context) -> Packer:
        if self.block == COLUMN:
            return ColumnSignPacker(self.values == "scaled", layout, context)
        return SignPacker(self, layout.units(unit_size(self.block)), context)


class SignPacker(GatherPacker):
    """Bits, then the values: for every block the one for bit 0 and the one for bit 1, or only the latter."""

    def __init__(self, coder: Sign, layout: Layout, context: Context) -> None:
        self.coder, self.scaled = coder, coder.values == "scaled"
        self.rows = Rows.of(layout, field_rows(bits=1), coder.block)
        self.bit_bytes = self.rows.num_granules * field_granule_bytes(bits=1)
        self.used_bytes = self.bit_bytes + self.rows.num_scales * (4 if self.scaled else 8)
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> SignPacker:
        return SignPacker(self.coder, layout, self.context)

    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        both = torch.empty(2, self.rows.num_scales, dtype=torch.float32, device=x.device)
        bits, values = payload[: self.bit_bytes], payload[self.bit_bytes : self.used_bytes]
        payload[self.used_bytes : self.granule_bytes] = 0
        self.context.kernels.sign.encode(x, self.rows.table, self.scaled, bits, both[0], both[1])
        values.view(torch.float32).copy_(both[1] if self.scaled else both.T.flatten())

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count = payloads.shape[0]
        values = payloads[:, self.bit_bytes : self.used_bytes].contiguous().view(torch.float32) / count
        if self.scaled:
            low, high = (
                torch.where(values.isnan(), values, -values),
                values,
            )  # NaN has one bit pattern everywhere
        else:
            low, high = values.view(count, -1, 2).unbind(-1)
        self.context.kernels.sign.decode(
            payloads.reshape(-1),
            count,
            self.rows.table,
            low.flatten().contiguous(),
            high.flatten().contiguous(),
            x,
        )
