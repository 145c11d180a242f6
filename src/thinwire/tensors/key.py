"""Counter-based randomness: the key of every draw follows from (seed, step, tensor name, rank)."""

from __future__ import annotations

import functools
import hashlib
from dataclasses import dataclass

_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Key:
    """Gives every tensor its own two 32-bit key words for one step on one rank.

    The words do not depend on buckets, on the order of tensors or on the kernels that use them.

    >>> Key(seed=1, step=2, rank=0).words("fc.weight") == Key(seed=1, step=2, rank=0).words("fc.weight")
    True
    """

    seed: int
    step: int
    rank: int

    def words(self, name: str) -> tuple[int, int]:
        """The two key words of a tensor."""
        mixed = mix(self.seed & _MASK)
        for part in (self.step, _name_hash(name), self.rank):
            mixed = mix(mixed ^ (part & _MASK))
        return mixed & 0xFFFFFFFF, mixed >> 32


def mix(z: int) -> int:
    """The finalizer of splitmix64: a bijection of 64 bits."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@functools.cache
def _name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")
