"""Parameters of ring-LWE: how wide q and the flooding must be for a product, and what the security rests on.

Polynomials have N = 4096 coefficients, the secret is ternary, errors are centred binomial (deviation 3.24, at
most 21), q = 2^k. The homomorphic encryption standard (Albrecht et al. 2018, table 1: ternary secret, 128
bits, classical) allows k <= 109 at this N.

An answer's noise, without the flood, is at most V = 21 (sum |w| + 2 N): the client's errors times weights,
the public key's error times u, and e2 s. A flood uniform in 2^f values hides a shift by V to V / 2^f in
statistical distance, for each of the outputs, so

    f = 40 + ceil(log2(outputs * V)),    k = l + f + 2.

The flood then takes at most an eighth of 2^(k-l) to either side. Of the half that decryption has, the bits of
c0 that are not sent take 1/64; what is left, 0.359, is for the bits of c1 that are not sent. These err by
independent uniform numbers, one for each non-zero coefficient of s: less often than 2^-71 per coefficient,
whatever s is, and 2^-107 for a usual one (`failure_bits`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log
from types import MappingProxyType

# log2 q that the standard allows for 128 bits, by N.
STANDARD: Mapping[int, int] = MappingProxyType({1024: 27, 2048: 54, 4096: 109, 8192: 218, 16384: 438})
DEGREE = 4096
MAX_LOG_Q = 109
assert STANDARD[DEGREE] >= MAX_LOG_Q
MAX_ERROR = 21  # of one coefficient; the deviation is sqrt(21 / 2) = 3.24, the standard's 3.2
ERROR_VARIANCE = 10.5
STATISTICAL_BITS = 40
LOW_BITS, TOP_BITS = 5, 9  # below the plaintext, of c0 and of c1, that an answer has (private/csrc/rlwe.h)
MAX_PLAINTEXT_BITS = 39  # decryption with one prime of 62 bits
PRIMES = (0x3FFFFFFFFFFE8001, 0x3FFFFFFFFFFF0001)  # of csrc/rlwe.cpp
EXACT = PRIMES[0] * PRIMES[1] // 2  # products of polynomials are exact below it


@dataclass(frozen=True)
class RlweParameters:
    """q = 2^k, plaintexts modulo 2^l, a flood of 2^f."""

    k: int
    l: int  # noqa: E741
    f: int

    @staticmethod
    def choose(width: int, weight_sum: int, outputs: int) -> RlweParameters | None:
        """For products modulo 2^width; None if no secure q has room for them.

        weight_sum: the most that sum |w| of an output can be. outputs: of the layer, in one query.

        >>> RlweParameters.choose(18, 144 * 8, 16 * 32 * 32)
        RlweParameters(k=92, l=18, f=72)
        >>> RlweParameters.choose(38, 4608 * 2**15, 16 * 32 * 32) is None
        True
        """
        noise = MAX_ERROR * (weight_sum + 2 * DEGREE)
        flood = STATISTICAL_BITS + (outputs * noise - 1).bit_length()
        k = width + flood + 2
        exact = (weight_sum << k) + (DEGREE << MAX_LOG_Q) < EXACT
        if k > MAX_LOG_Q or width > MAX_PLAINTEXT_BITS or not exact:
            return None
        return RlweParameters(k, width, flood)


def failure_bits(nonzero: int = DEGREE) -> float:
    """-log2 of a bound on the chance that one coefficient is decrypted wrongly, by the weight of s.

    A sum of n uniform numbers of width 1 is sub-Gaussian with variance n / 12: it exceeds t with a chance of
    at most 2 exp(-6 t^2 / n), here with t = (1/2 - 1/8 - 1/64) 2^9.

    >>> round(failure_bits()), round(failure_bits(2 * DEGREE // 3))
    (71, 106)
    """
    left = (0.5 - 1 / 8 - 0.5 / (1 << LOW_BITS)) * (1 << TOP_BITS)
    return (6 * left**2 / nonzero - log(2)) / log(2)
