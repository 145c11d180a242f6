"""AES-128 in plain Python, from FIPS-197: slow, for the twin only."""

from __future__ import annotations

from functools import lru_cache


def _double(a: int) -> int:
    return (a << 1) ^ (0x11B if a & 0x80 else 0)


def _times(a: int, b: int) -> int:
    total = 0
    while b:
        total ^= a if b & 1 else 0
        a, b = _double(a) & 0xFF, b >> 1
    return total


def _sbox() -> list[int]:
    inverse = [0] + [next(b for b in range(256) if _times(a, b) == 1) for a in range(1, 256)]
    box = []
    for b in inverse:
        rotated = [((b << shift) | (b >> (8 - shift))) & 0xFF for shift in range(5)]
        box.append(rotated[0] ^ rotated[1] ^ rotated[2] ^ rotated[3] ^ rotated[4] ^ 0x63)
    return box


SBOX = _sbox()
TIMES2 = [_double(a) & 0xFF for a in range(256)]
SHIFTED = [0, 5, 10, 15, 4, 9, 14, 3, 8, 13, 2, 7, 12, 1, 6, 11]


@lru_cache(maxsize=8192)
def round_keys(key: bytes) -> list[bytes]:
    """The eleven round keys."""
    words, constant = [key[i : i + 4] for i in range(0, 16, 4)], 1
    for i in range(4, 44):
        word = words[i - 1]
        if i % 4 == 0:
            word = bytes(SBOX[b] for b in word[1:] + word[:1])
            word = bytes([word[0] ^ constant]) + word[1:]
            constant = TIMES2[constant]
        words.append(bytes(a ^ b for a, b in zip(word, words[i - 4], strict=True)))
    return [b"".join(words[i : i + 4]) for i in range(0, 44, 4)]


def encrypt(key: bytes, block: bytes) -> bytes:
    """One block."""
    keys = round_keys(key)
    state = [a ^ b for a, b in zip(block, keys[0], strict=True)]
    for number in range(1, 11):
        state = [SBOX[state[i]] for i in SHIFTED]
        if number < 10:
            mixed = []
            for c in range(0, 16, 4):
                a, b, d, e = state[c : c + 4]
                every = a ^ b ^ d ^ e
                mixed += [
                    a ^ every ^ TIMES2[a ^ b],
                    b ^ every ^ TIMES2[b ^ d],
                    d ^ every ^ TIMES2[d ^ e],
                    e ^ every ^ TIMES2[e ^ a],
                ]
            state = mixed
        state = [a ^ b for a, b in zip(state, keys[number], strict=True)]
    return bytes(state)


def stream(key: bytes, num_bytes: int, skip: int = 0) -> bytes:
    """Bytes skip..skip + num_bytes of the CTR key stream that starts at counter 0."""
    first, last = skip // 16, -(-(skip + num_bytes) // 16)
    blocks = b"".join(encrypt(key, counter.to_bytes(16, "big")) for counter in range(first, last))
    return blocks[skip - 16 * first :][:num_bytes]
