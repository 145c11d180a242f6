"""Base OT: Masny-Rindal "endemic" OT over ristretto255; gives the 128 seeds that an extension starts from.

The group comes from the `rbcl` wheel or from an installed libsodium; no curve is implemented here.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from thinwire_private.errors import MissingError, ProtocolError
from thinwire_private.ot.primitives import Prg, derive, native

POINT_BYTES = 32
SCALAR_BYTES = 32
HASH_BYTES = 64
KEY_BYTES = 16


@dataclass(frozen=True)
class RistrettoGroup:
    """Points and scalars as bytes; refuses points that are not canonical encodings."""

    add: Callable[[bytes, bytes], bytes]
    subtract: Callable[[bytes, bytes], bytes]
    multiply: Callable[[bytes, bytes], bytes]  # scalar, point
    multiply_base: Callable[[bytes], bytes]
    from_hash: Callable[[bytes], bytes]  # 64 uniform bytes to a point
    reduce: Callable[[bytes], bytes]  # 64 uniform bytes to a scalar


@cache
def ristretto255() -> RistrettoGroup:
    """The group, or one sentence that says what to install."""
    try:
        return _from_rbcl(importlib.import_module("rbcl"))
    except ImportError:
        pass
    try:
        return from_libsodium()
    except (OSError, AttributeError):
        raise MissingError(
            "private inference needs the group ristretto255: pip install rbcl, or install libsodium 1.0.18"
        ) from None


def _from_rbcl(rbcl: ModuleType) -> RistrettoGroup:
    def checked(function: Callable[..., bytes], *is_point: bool) -> Callable[..., bytes]:
        # rbcl does not look at what libsodium says of its inputs, so they are looked at here.
        def apply(*values: bytes) -> bytes:
            for value, point in zip(values, is_point, strict=True):
                if point and not rbcl.crypto_core_ristretto255_is_valid_point(value):
                    raise ValueError("these bytes are not a point of ristretto255")
            return bytes(function(*values))

        return apply

    return RistrettoGroup(
        checked(rbcl.crypto_core_ristretto255_add, True, True),
        checked(rbcl.crypto_core_ristretto255_sub, True, True),
        checked(rbcl.crypto_scalarmult_ristretto255, False, True),
        rbcl.crypto_scalarmult_ristretto255_base,
        rbcl.crypto_core_ristretto255_from_hash,
        rbcl.crypto_core_ristretto255_scalar_reduce,
    )


def from_libsodium() -> RistrettoGroup:
    """The group as the system's own libsodium has it."""
    sodium = ctypes.CDLL(ctypes.util.find_library("sodium") or "libsodium.so.23")
    if sodium.sodium_init() < 0:
        raise OSError("libsodium cannot start")

    def call(name: str, *sizes: int) -> Callable[..., bytes]:
        function = getattr(sodium, name)

        def apply(*values: bytes) -> bytes:
            for value, size in zip(values, sizes, strict=True):
                if len(value) != size:
                    raise ValueError(f"{name} takes {size} bytes, not {len(value)}")
            out = ctypes.create_string_buffer(POINT_BYTES)
            if function(out, *values):
                raise ValueError(f"{name} refused its input: not a point of ristretto255")
            return out.raw

        return apply

    point, scalar = POINT_BYTES, SCALAR_BYTES
    return RistrettoGroup(
        call("crypto_core_ristretto255_add", point, point),
        call("crypto_core_ristretto255_sub", point, point),
        call("crypto_scalarmult_ristretto255", scalar, point),
        call("crypto_scalarmult_ristretto255_base", scalar),
        call("crypto_core_ristretto255_from_hash", HASH_BYTES),
        call("crypto_core_ristretto255_scalar_reduce", HASH_BYTES),
    )


class BaseReceiver:
    """Learns key_b of each OT. Steps, for the OT with index i and choice bit b:

    1. scalar a, random point r_{1-b}; r_b = a*G - H_b(r_{1-b});  message: r_0, r_1 (64 bytes each OT).
    2. from the sender's y*G: key_b = KDF(a*(y*G)).

    H and KDF hash the session, the index and the choice. Masny and Rindal, CCS 2019.
    """

    def __init__(self, session: bytes, choices: Sequence[int], prg: Prg) -> None:
        group = ristretto255()
        self._session, self._choices = session, list(choices)
        self._scalars = [group.reduce(prg.take(HASH_BYTES).tobytes()) for _ in choices]
        points = []
        for index, (bit, scalar) in enumerate(zip(self._choices, self._scalars, strict=True)):
            other = group.from_hash(prg.take(HASH_BYTES).tobytes())
            own = group.subtract(group.multiply_base(scalar), _hash(session, index, bit, other))
            points += [other, own] if bit else [own, other]
        self.message = b"".join(points)

    def keys(self, message: bytes) -> list[bytes]:
        """The chosen keys, from the sender's message."""
        group = ristretto255()
        try:
            shared = [group.multiply(scalar, message) for scalar in self._scalars]
        except Exception:
            raise ProtocolError("the peer's base OT message is not a point of ristretto255") from None
        return [
            _kdf(self._session, index, bit, point)
            for index, (bit, point) in enumerate(zip(self._choices, shared, strict=True))
        ]


class BaseSender:
    """Gets both keys of each OT: scalar y, message y*G; key_j = KDF(y*(r_j + H_j(r_{1-j})))."""

    def __init__(self, session: bytes, prg: Prg) -> None:
        self._session = session
        self._scalar = ristretto255().reduce(prg.take(HASH_BYTES).tobytes())
        self.message = ristretto255().multiply_base(self._scalar)

    def keys(self, message: bytes) -> list[tuple[bytes, bytes]]:
        """(key_0, key_1) of each OT, from the receiver's message."""
        group, pairs = ristretto255(), []
        try:
            for index, start in enumerate(range(0, len(message), 2 * POINT_BYTES)):
                r = (
                    message[start : start + POINT_BYTES],
                    message[start + POINT_BYTES : start + 2 * POINT_BYTES],
                )
                keys = []
                for j in (0, 1):
                    point = group.add(r[j], _hash(self._session, index, j, r[1 - j]))
                    keys.append(_kdf(self._session, index, j, group.multiply(self._scalar, point)))
                pairs.append((keys[0], keys[1]))
        except Exception:
            raise ProtocolError("the peer's base OT message holds bytes that are not a point") from None
        return pairs


def message_bytes(count: int) -> tuple[int, int]:
    """Bytes of the receiver's and of the sender's message."""
    return 2 * POINT_BYTES * count, POINT_BYTES


def _hash(session: bytes, index: int, choice: int, point: bytes) -> bytes:
    return ristretto255().from_hash(
        derive(session, "base point", index.to_bytes(4, "little"), bytes([choice]), point)
    )


def _kdf(session: bytes, index: int, choice: int, point: bytes) -> bytes:
    return derive(session, "base key", index.to_bytes(4, "little"), bytes([choice]), point)[:KEY_BYTES]


def check_requirements() -> None:
    """Raise MissingError, one sentence with the way out, unless AES and ristretto255 are at hand."""
    native()
    ristretto255()
