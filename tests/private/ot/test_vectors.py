"""Published vectors: RFC 9496 for the group, FIPS-197 and SP 800-38A for AES; the plain twins meet them
too."""

from __future__ import annotations

import contextlib
import hashlib

import numpy as np
import plain_aes
import plain_ristretto
import pytest

from thinwire_private.ot.base import RistrettoGroup, from_libsodium, ristretto255
from thinwire_private.ot.primitives import Prg, as_bytes, native

MULTIPLES = [  # RFC 9496, A.1
    "0000000000000000000000000000000000000000000000000000000000000000",
    "e2f2ae0a6abc4e71a884a961c500515f58e30b6aa582dd8db6a65945e08d2d76",
    "6a493210f7499cd17fecb510ae0cea23a110e8d5b901f8acadd3095c73a3b919",
    "94741f5d5d52755ece4f23f044ee27d5d1ea1e2bd196b462166b16152a9d0259",
    "da80862773358b466ffadfe0b3293ab3d9fd53c5ea6c955358f568322daf6a57",
    "e882b131016b52c1d3337080187cf768423efccbb517bb495ab812c4160ff44e",
]
BAD = [  # RFC 9496, A.2: not canonical, negative, not square, negative x y, s = -1
    "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "f3ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "0100000000000000000000000000000000000000000000000000000000000000",
    "ed57ffd8c914fb201471d1c3d245ce3c746fcbe63a3679d51b6a516ebebe0e20",
    "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
]
COFFEE = b"Ristretto is traditionally a short shot of espresso coffee"  # RFC 9496, A.3
COFFEE_POINT = "3066f82a1a747d45120d1740f14358531a8f04bbffe6a819f86dfe50f44a0a46"

KEY = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")  # SP 800-38A, F.1.1 and F.5.1
ECB = {
    "6bc1bee22e409f96e93d7e117393172a": "3ad77bb40d7a3660a89ecaf32466ef97",
    "ae2d8a571e03ac9c9eb76fac45af8e51": "f5d3d58503b9699de785895a96fdbaaf",
    "30c81c46a35ce411e5fbc1191a0a52ef": "43b1cd7f598ece23881b00e3ed030688",
    "f69f2445df4f9b17ad2b417be66c3710": "7b0c785e27e8ad3f8223207104725dd4",
    "f0f1f2f3f4f5f6f7f8f9fafbfcfdfeff": "ec8cdf7398607cb0f2d21675ea9ea1e4",  # a counter block of F.5.1
}


def groups() -> list[RistrettoGroup]:
    found = [ristretto255()]
    with contextlib.suppress(OSError, AttributeError):
        found.append(from_libsodium())
    return found


def permute(key: bytes, data: bytes) -> bytes:
    out = np.empty(len(data), np.uint8)
    native().Permutation(as_bytes(key)).apply(as_bytes(data), out)
    return out.tobytes()


@pytest.mark.parametrize("number", range(1, len(MULTIPLES)))
def test_multiples_of_the_generator(number: int) -> None:
    scalar = number.to_bytes(32, "little")
    base = bytes.fromhex(MULTIPLES[1])
    for found in groups():
        assert found.multiply_base(scalar).hex() == MULTIPLES[number]
        assert found.multiply(scalar, base).hex() == MULTIPLES[number]
    assert (
        plain_ristretto.encode(plain_ristretto.multiply(number, plain_ristretto.GENERATOR)).hex()
        == (MULTIPLES[number])
    )


def test_sums_and_differences() -> None:
    one, two, three = (bytes.fromhex(text) for text in MULTIPLES[1:4])
    for found in groups():
        assert found.add(one, two) == three
        assert found.subtract(three, two) == one


@pytest.mark.parametrize("text", BAD)
def test_bad_encodings_are_refused(text: str) -> None:
    point, one = bytes.fromhex(text), bytes.fromhex(MULTIPLES[1])
    for found in groups():
        with pytest.raises(Exception):  # noqa: B017  (rbcl and ctypes raise errors of their own)
            found.add(point, one)
        with pytest.raises(Exception):  # noqa: B017
            found.multiply((3).to_bytes(32, "little"), point)
    with pytest.raises(ValueError):
        plain_ristretto.decode(point)


def test_hash_to_group() -> None:
    digest = hashlib.sha512(COFFEE).digest()
    for found in groups():
        assert found.from_hash(digest).hex() == COFFEE_POINT
    assert plain_ristretto.encode(plain_ristretto.from_hash(digest)).hex() == COFFEE_POINT


def test_aes_of_fips_197() -> None:
    key, block = bytes(range(16)), bytes.fromhex("00112233445566778899aabbccddeeff")
    assert permute(key, block).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"
    assert plain_aes.encrypt(key, block).hex() == "69c4e0d86a7b0430d8cdb78070b4c55a"


def test_aes_of_sp_800_38a() -> None:
    blocks, sealed = bytes.fromhex("".join(ECB)), "".join(ECB.values())
    assert permute(KEY, blocks).hex() == sealed
    assert b"".join(plain_aes.encrypt(KEY, blocks[i : i + 16]) for i in range(0, 80, 16)).hex() == sealed


def test_the_prg_is_aes_in_counter_mode() -> None:
    prg = Prg(KEY)
    pieces = [prg.take(size).tobytes() for size in (5, 27, 64, 1)]
    counters = b"".join(i.to_bytes(16, "big") for i in range(7))
    assert b"".join(pieces) == permute(KEY, counters)[:97] == plain_aes.stream(KEY, 97)


def test_two_prgs_without_a_seed_differ() -> None:
    assert Prg().take(16).tobytes() != Prg().take(16).tobytes()
