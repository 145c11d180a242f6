"""Native kernels check every table and every size before they touch memory."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from simulation import same_bits
from thinwire.kernels import Kernels, backends
from thinwire.kernels.sizes import digits_per_word, field_granule_bytes, field_rows

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
        ([0, 320, 0, 0, 2**63 - 32, 0], "multiple of 32"),
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
        (4, 11, 32, "sum width"),  # 9^11 > 2^32
        (4, 0, 32, "sum width"),
        (4, 21, 32, "sum width"),
    ):
        with pytest.raises(ValueError, match=sentence):
            native.ternary.add(payloads, num_payloads, 5, sum_digits, torch.zeros(words, dtype=torch.int32))
    for wrong in ({"words": 31}, {"words": 64}, {"shards": 2}):
        with pytest.raises(ValueError, match="wrong size"):
            decode_sum(native, **wrong)
    for wrong in ({"world": 0}, {"world": 32768}, {"digits": 0}, {"digits": 11}, {"digits": 21}):
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


HUGE = (  # shards, rows: products that are 0, or what is there, modulo 2^64
    (2**59, 10),
    (2**58, 20),
    (2**62, 40),
    (2**63 - 1, 10),
    (1, 2**63 - 1),
    (2**59, 2**63 - 1),
    (2**32, 10 * 2**27),
    (-1, -10),
    (-(2**63), 10),
    (0, 10),
    (1, -10),
    (-1, 0),
)


@pytest.mark.parametrize(("shards", "rows"), HUGE)
def test_sizes_that_overflow_raise(native: Kernels, shards: int, rows: int) -> None:
    """Sizes that multiply to 0 made both families read where nothing is."""
    for words in (0, 32):
        with pytest.raises(ValueError, match="wrong size"):
            decode_sum(native, words=words, shards=shards, rows=rows)
        with pytest.raises(ValueError, match="wrong size"):
            native.qsgd.decode_sum(
                torch.zeros(words, dtype=torch.int32),
                shards,
                rows,
                28,
                5,
                torch.tensor(GOOD),
                torch.ones(1),
                torch.zeros(320),
            )


def test_shards_without_rows_end_at_once(native: Kernels) -> None:
    empty = torch.empty(0, dtype=torch.int64)
    words = torch.empty(0, dtype=torch.int32)
    for kernels in (native.ternary, native.qsgd):
        kernels.decode_sum(words, 2**62, 0, 4, 5, empty, torch.ones(1), torch.zeros(3))


@pytest.mark.parametrize("count", [2**40, 2**63 - 1, 65536, 0, -1, -(2**63)])
def test_impossible_numbers_of_payloads_raise(native: Kernels, count: int) -> None:
    """Nothing is a multiple of everything: empty payloads let any number pass."""
    none, nothing = torch.empty(0, dtype=torch.uint8), torch.empty(0)
    runs = torch.tensor([0, 1, 0, 1, 0, 0, 0, 0, 1])
    empty, x = torch.empty(0, dtype=torch.int64), torch.zeros(3)
    calls = (
        lambda: native.topk.scatter(none, count, runs, nothing, 1.0, x),
        lambda: native.sign.decode(none, count, empty, nothing, nothing, x),
        lambda: native.qsgd.decode_own(none, count, 4, empty, nothing, x),
        lambda: native.rangefloat.decode(none, count, empty, torch.empty(0, dtype=torch.int32), 8, 1.0, x),
    )
    for call in calls:
        with pytest.raises(ValueError, match="uneven"):
            call()


def test_mantissas_that_overflow_raise(native: Kernels) -> None:
    words = torch.zeros(1, dtype=torch.int32)
    for first in (2**31 - 1, 23, -1):
        with pytest.raises(ValueError, match="mantissa bits"):
            native.rangefloat.measure(torch.zeros(32), torch.tensor([0, 32]), 8, first, 1, 5, words)


@pytest.mark.parametrize("bits", range(2, 9))
def test_damaged_payloads_give_the_same_wrong_sums(native: Kernels, bits: int) -> None:
    """Codes and digits that no encoder writes: their sums overflowed, and each build gave its own words."""
    generator = torch.Generator().manual_seed(bits)
    for world in (3, 20):
        codes = torch.randint(0, 256, (world * 2 * field_granule_bytes(bits),), generator=generator).byte()
        codes[: codes.numel() // 2] = 255
        found = []
        for kernels in (native, backends()["reference"]):
            top, rows = (1 << (bits - 1)) - 1, 2 * field_rows(bits)
            digits = digits_per_word(2 * world * top + 1)
            words = torch.zeros(-(-rows // digits) * 32, dtype=torch.int32)
            kernels.qsgd.add(codes, world, bits, digits, words)
            digits = digits_per_word(2 * world + 1)
            trits = torch.zeros(-(-4 * codes.numel() // world // 32 // digits) * 32, dtype=torch.int32)
            kernels.ternary.add(codes, world, 4, digits, trits)
            found.append((words, trits))
        assert all(same_bits(a, b) for a, b in zip(*found, strict=True))
