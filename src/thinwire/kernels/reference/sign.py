"""Sign kernels in plain torch: one bit an element, and the values that stand for both signs.

Bits are fields of one bit (reference/fields.py): bit k of word j of a granule is element 32 * k + j.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.kernels.reference.bits import blocks, ordered_sum, pack_fields, spread, unpack_fields
from thinwire.kernels.sizes import ROW, field_granule_bytes, field_rows

_ROWS, _GRANULE_BYTES = field_rows(1), field_granule_bytes(1)


def encode(x: Tensor, table: Tensor, scaled: bool, payload: Tensor, low: Tensor, high: Tensor) -> None:
    """Bit = x >= 0 (NaN counts as negative, padding as not), and for every block the two values.

    high, low = the means of the elements >= 0 and of the others; or, if `scaled`, +-|x|_1 / n.
    What is not finite becomes one NaN.
    """
    for offset, numel, row, scale, block, _ in table.view(-1, 6).tolist():
        values = x[offset : offset + numel]
        padded = torch.nn.functional.pad(values, (0, -numel % (ROW * _ROWS)))
        packed = pack_fields((padded >= 0).to(torch.int64), 1)
        first = row // _ROWS * _GRANULE_BYTES
        payload[first : first + packed.numel()] = packed
        for index, part in enumerate(blocks(values, block)):
            low[scale + index], high[scale + index] = _values_of(part, scaled)


def decode(payloads: Tensor, num_payloads: int, table: Tensor, low: Tensor, high: Tensor, x: Tensor) -> None:
    """Adds up what the payloads stand for, in their order; what is behind their bits is left alone."""
    rows = payloads.view(num_payloads, -1)
    lows, highs = low.view(num_payloads, -1), high.view(num_payloads, -1)
    for segment in table.view(-1, 6).tolist():
        offset, numel, row = segment[:3]
        first, last = row // _ROWS, -(-(row * ROW + numel) // (ROW * _ROWS))
        total = torch.zeros(numel, device=x.device)
        for rank in range(num_payloads):
            bits = unpack_fields(rows[rank, first * _GRANULE_BYTES : last * _GRANULE_BYTES], 1)[:numel]
            one = torch.where(bits == 1, spread(highs[rank], segment), spread(lows[rank], segment))
            total = one if rank == 0 else total + one
        x[offset : offset + numel] = total


def _values_of(values: Tensor, scaled: bool) -> tuple[float, float]:
    up = values >= 0
    positive = ordered_sum(torch.where(up, values, 0.0).double()) if values.numel() else 0.0
    negative = ordered_sum(torch.where(up, 0.0, values).double()) if values.numel() else 0.0
    if scaled:
        value = _mean(positive - negative, values.numel())
        return (-value if value == value else value), value
    num_up = int(up.sum())
    return _mean(negative, values.numel() - num_up), _mean(positive, num_up)


def _mean(total: float, count: int) -> float:
    if count == 0:
        return 0.0
    mean = float(torch.tensor(total / count, dtype=torch.float64).float())
    return mean if abs(mean) < float("inf") else float("nan")
