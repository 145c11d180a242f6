"""Top-k kernels in plain torch: choosing the largest groups of chunks, packing places, adding values back.

A row of the table is a run of chunks that are alike (csrc/topk.h); bits are written the lowest first. An
index has `low_bits` low bits, written as they are, and a high part h, written as a set bit: bit h + j for the
j-th index of its chunk (Elias-Fano), bit h if there are no low bits (a bitmap), none if h is always 0. A
chunk that is kept whole has no bits at all.
"""

from __future__ import annotations

import torch
from torch import Tensor

from thinwire.kernels.sizes import high_bits

COLUMNS = 9
_NAN = 0x7FC00000
_MOST = torch.finfo(torch.float32).max


def select(x: Tensor, table: Tensor, indices: Tensor, values: Tensor) -> None:
    """The k largest groups of every chunk by their keys, of equal ones the first."""
    for offset, chunk, count, k, low_bits, low_byte, high_byte, value, group in _runs(table):
        elements = x[offset : offset + count * chunk * group].view(count, chunk, group)
        order = keys(elements).sort(dim=1, descending=True, stable=True).indices
        chosen = order[:, :k].sort(dim=1).values
        found = elements.gather(1, chosen.unsqueeze(2).expand(-1, -1, group))
        values[value : value + found.numel()] = found.flatten()
        _put(indices, low_byte, _digits(chosen & ((1 << low_bits) - 1), low_bits))
        _put(indices, high_byte, _marks(chosen, chunk, k, low_bits))


def keys(values: Tensor) -> Tensor:
    """The magnitudes of groups (the last dimension) as the bit patterns of floats: NaN > Inf > numbers.

    Of one number |x|; of two sqrt(a^2 + b^2) in float64, at most the largest float if both are finite.
    """
    if values.shape[-1] == 1:
        return values.squeeze(-1).view(torch.int32) & 0x7FFFFFFF
    length = values.double().square().sum(-1).sqrt()
    length = torch.where((length > _MOST) & (length < torch.inf), _MOST, length)
    return (length.float().view(torch.int32) & 0x7FFFFFFF).clamp(max=_NAN)


def scatter(
    payloads: Tensor, num_payloads: int, table: Tensor, values: Tensor, factor: float, x: Tensor
) -> None:
    """x = the sum, in order, of all payloads' value * factor at their places, and 0 elsewhere.

    What lies behind the indices of a payload is left alone. Raises ValueError if an index leaves its chunk.
    """
    for offset, chunk, count, *_, group in _runs(table):
        x[offset : offset + count * chunk * group] = 0
    for payload, own in zip(payloads.view(num_payloads, -1), values.view(num_payloads, -1), strict=True):
        _add(payload, table, own, factor, x)


def _add(indices: Tensor, table: Tensor, values: Tensor, factor: float, x: Tensor) -> None:
    for offset, chunk, count, k, low_bits, low_byte, high_byte, value, group in _runs(table):
        if k == chunk:
            chosen = torch.arange(k, device=x.device).expand(count, k)
        else:
            chosen = _low(indices, low_byte, count, k, low_bits)
        width = high_bits(chunk, k, low_bits)
        if width:
            marks = _take(indices, high_byte, count * width).view(count, width)
            chosen += _places(marks, k, low_bits) << low_bits
        _check(bool(((chosen >= 0) & (chosen < chunk)).all()))
        first = torch.arange(count, device=x.device).unsqueeze(1) * chunk
        places = (first + chosen).flatten().unsqueeze(1) * group + torch.arange(group, device=x.device)
        scaled = values[value : value + places.numel()] * factor
        x[offset : offset + count * chunk * group].index_add_(0, places.flatten(), scaled)


def _runs(table: Tensor) -> list[list[int]]:
    found: list[list[int]] = table.view(-1, COLUMNS).tolist()
    return found


def _digits(values: Tensor, width: int) -> Tensor:
    """The `width` bits of every number, the lowest first."""
    return values.flatten().unsqueeze(1) >> torch.arange(width, device=values.device) & 1


def _low(indices: Tensor, first: int, count: int, k: int, low_bits: int) -> Tensor:
    """The low parts of all indices of a run."""
    bits = _take(indices, first, count * k * low_bits).view(count, k, low_bits)
    return (bits << torch.arange(low_bits, device=bits.device)).sum(2)


def _marks(chosen: Tensor, chunk: int, k: int, low_bits: int) -> Tensor:
    bits = chosen.new_zeros(chosen.shape[0], high_bits(chunk, k, low_bits))
    if bits.numel():
        ranks = torch.arange(k, device=chosen.device) if low_bits else 0
        bits.scatter_(1, (chosen >> low_bits) + ranks, 1)
    return bits


def _places(marks: Tensor, k: int, low_bits: int) -> Tensor:
    """The high parts that marks stand for; every chunk must have k of them."""
    _check(bool((marks.sum(1) == k).all()))
    found = marks.nonzero()[:, 1].view(-1, k)
    return found - torch.arange(k, device=marks.device) if low_bits else found


def _put(into: Tensor, first: int, bits: Tensor) -> None:
    padded = torch.nn.functional.pad(bits.flatten(), (0, -bits.numel() % 8)).view(-1, 8)
    weights = 1 << torch.arange(8, device=bits.device)
    into[first : first + padded.shape[0]] = (padded * weights).sum(1).to(torch.uint8)


def _take(source: Tensor, first: int, count: int) -> Tensor:
    """`count` bits from byte `first` on."""
    raw = source[first : first + -(-count // 8)].to(torch.int64)
    bits = (raw.unsqueeze(1) >> torch.arange(8, device=raw.device) & 1).flatten()
    return bits[:count]


def _check(fine: bool) -> None:
    if not fine:
        raise ValueError("topk payload: its indices are damaged, they name places outside their chunk")
