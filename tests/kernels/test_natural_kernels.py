"""Natural compression: kernels for GPUs give the bits of the reference."""

from __future__ import annotations

import torch
from hypothesis import example, given
from hypothesis import strategies as st
from lanes import KINDS, few, make_lane, tensor
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.base import NaturalKernels

REFERENCE = backends()["reference"].natural
EVERYTHING = [(kind, size, gap) for kind in KINDS for size, gap in ((1, 0), (33, 1))]


def coded(kernels: NaturalKernels, x: Tensor, table: Tensor, keys: Tensor, count: int) -> list[Tensor]:
    numel = int(table.view(-1, 3)[:, 1].sum())
    payload = torch.full((numel + -(-numel // 8),), 0xAA, dtype=torch.uint8)
    kernels.encode(x, table, keys, payload)
    others = [payload, *(payload.roll(shift) for shift in range(1, count))]
    mean = torch.full_like(x, -12345.0)
    kernels.decode(torch.cat(others), count, table, mean)
    return [payload, mean]


@given(tensors=st.lists(tensor, max_size=6), seed=st.integers(0, 2**31), count=st.integers(1, 4))
@example(EVERYTHING, 0, 3)
@example([("normal", 5003, 0), ("normal", 129, 1)], 0, 2)
def test_coding_is_the_reference_bit_for_bit(
    compared: Kernels, tensors: list[tuple[str, int, int]], seed: int, count: int
) -> None:
    lane = make_lane([t for t in few(compared, tensors) if t[1]], seed, 0, 4)
    pieces = lane.table.view(-1, 6)[:, :2]
    starts = pieces[:, 1].cumsum(0) - pieces[:, 1]
    table = torch.cat([pieces, starts[:, None]], 1).flatten()
    found = coded(compared.natural, lane.x, table, lane.keys, count)
    for own, expected in zip(found, coded(REFERENCE, lane.x, table, lane.keys, count), strict=True):
        assert same_bits(own, expected)
