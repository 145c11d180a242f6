"""Native kernels check every table and every size before they touch memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from thinwire.kernels import Kernels

GOOD = [0, 320, 0, 0, 0, 0]  # offset, numel, row, scale, block, start


def scales(native: Kernels, table: list[int], bits: Tensor | None = None) -> None:
    native.ternary.scales(
        torch.zeros(320),
        torch.tensor(table, dtype=torch.int64),
        2.5,
        False,
        torch.zeros(1, dtype=torch.int32) if bits is None else bits,
        torch.zeros(1),
    )


def encode(native: Kernels, table: list[int], num_keys: int = 2, digits: int = 5, payload: int = 64) -> None:
    native.ternary.encode(
        torch.zeros(320),
        torch.tensor(table),
        torch.zeros(num_keys, dtype=torch.int32),
        torch.ones(2),
        torch.ones(2),
        digits,
        torch.zeros(payload, dtype=torch.uint8),
    )


def decode_sum(
    native: Kernels, words: int = 32, shards: int = 1, rows: int = 10, world: int = 4, digits: int = 10
) -> None:
    native.ternary.decode_sum(
        torch.zeros(words, dtype=torch.int32),
        shards,
        rows,
        world,
        digits,
        torch.tensor(GOOD),
        torch.ones(1),
        torch.zeros(320),
    )


def test_good_calls_work(native: Kernels) -> None:
    """What the bad calls below differ from."""
    scales(native, GOOD)
    encode(native, GOOD)
    decode_sum(native)


@pytest.mark.parametrize(
    ("table", "sentence"),
    [
        ([0, 320, 0, 0, 0], "six columns"),
        ([0, 321, 0, 0, 0, 0], "outside the buffer"),
        ([1, 320, 0, 0, 0, 0], "outside the buffer"),
        ([-1, 320, 0, 0, 0, 0], "outside the buffer"),
        ([0, -1, 0, 0, 0, 0], "outside the buffer"),
        ([2**63 - 1, 1, 0, 0, 0, 0], "outside the buffer"),
        ([1, 2**63 - 1, 0, 0, 0, 0], "outside the buffer"),
        ([0, 320, 0, 0, 31, 0], "multiple of 32"),
        ([0, 320, 0, 0, -32, 0], "multiple of 32"),
        ([0, 320, 0, 0, 0, 31], "multiple of 32"),
        ([0, 320, 0, 0, 0, -32], "multiple of 32"),
        ([0, 320, 0, 1, 0, 0], "outside the table of scales"),
        ([0, 320, 0, -1, 0, 0], "outside the table of scales"),
        ([0, 320, 0, 0, 160, 0], "outside the table of scales"),
        ([0, 32, 0, 0, 160, 160], "outside the table of scales"),
        ([0, 320, 0, 2**63 - 1, 32, 0], "outside the table of scales"),
        ([0, 320, -5, 0, 0, 0], "rows overlap"),
        ([0, 160, 0, 0, 0, 0, 160, 160, 4, 0, 0, 0], "rows overlap"),
    ],
)
def test_bad_tables_raise(native: Kernels, table: list[int], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        scales(native, table)


def test_payloads_and_keys_of_a_wrong_size_raise(native: Kernels) -> None:
    with pytest.raises(ValueError, match="rows lie outside the payload"):
        encode(native, GOOD, payload=32)
    with pytest.raises(ValueError, match="two words a segment"):
        encode(native, GOOD, num_keys=3)
    for digits in (0, 3, 6, -5):
        with pytest.raises(ValueError, match="4 or 5"):
            encode(native, GOOD, digits=digits)


def test_sums_of_a_wrong_size_raise(native: Kernels) -> None:
    payloads = torch.zeros(4 * 64, dtype=torch.uint8)
    for num_payloads, sum_digits, words, sentence in (
        (4, 10, 31, "wrong size"),
        (4, 10, 64, "wrong size"),
        (3, 10, 32, "uneven"),
        (0, 10, 32, "sum width"),
        (32768, 1, 32, "sum width"),
        (4, 0, 32, "sum width"),
        (4, 21, 32, "sum width"),
    ):
        with pytest.raises(ValueError, match=sentence):
            native.ternary.add(payloads, num_payloads, 5, sum_digits, torch.zeros(words, dtype=torch.int32))
    for wrong in ({"words": 31}, {"words": 64}, {"shards": 2}):
        with pytest.raises(ValueError, match="wrong size"):
            decode_sum(native, **wrong)
    for wrong in ({"world": 0}, {"world": 32768}, {"digits": 0}, {"digits": 21}):
        with pytest.raises(ValueError, match="sum width"):
            decode_sum(native, **wrong)
    with pytest.raises(ValueError, match="rows lie outside"):
        decode_sum(native, rows=9)


def test_outputs_of_another_dtype_are_refused(native: Kernels) -> None:
    for dtype in (torch.int64, torch.float32, torch.float64):
        with pytest.raises(TypeError):
            scales(native, GOOD, bits=torch.zeros(1, dtype=dtype))


def test_strided_outputs_are_refused(native: Kernels) -> None:
    x = torch.full((640,), 7.0)[::2]
    with pytest.raises(TypeError):
        native.ternary.decode_own(torch.ones(64, dtype=torch.uint8), 5, torch.tensor(GOOD), torch.ones(1), x)
