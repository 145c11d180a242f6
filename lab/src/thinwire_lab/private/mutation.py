"""Mutations: one damage to a string of bytes, drawn from a generator: what a fuzzer feeds its victims."""

from __future__ import annotations

import random
from collections.abc import Callable

EDGES = (0, 1, 0x7F, 0x80, 0xFF)


def mutate(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three damages; may be empty, and is seldom the same."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = dice.choice(DAMAGES)(data, dice)
    return data


def _flip(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return b"\0"
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _drop(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start + dice.randrange(1, 9) :]


def _insert(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data) + 1)
    return data[:place] + dice.randbytes(dice.randrange(1, 9)) + data[place:]


def _edge(data: bytes, dice: random.Random) -> bytes:
    """A run of edge values, as lengths and counts love them."""
    place, run = dice.randrange(len(data) + 1), dice.choice((1, 2, 4, 8))
    return data[:place] + bytes([dice.choice(EDGES)]) * run + data[place + run :]


def _swap(data: bytes, dice: random.Random) -> bytes:
    first, second = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[second:] + data[first:second] + data[:first]


def _noise(data: bytes, dice: random.Random) -> bytes:
    return dice.randbytes(len(data))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _drop,
    _insert,
    _edge,
    _swap,
    _noise,
)
