"""The group ristretto255, from the `rbcl` wheel or from an installed libsodium; no curve is written here."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from types import ModuleType

from thinwire_private.errors import MissingError

POINT_BYTES = 32
SCALAR_BYTES = 32
HASH_BYTES = 64


@dataclass(frozen=True)
class Group:
    """Points and scalars as bytes; refuses points that are not canonical encodings."""

    add: Callable[[bytes, bytes], bytes]
    subtract: Callable[[bytes, bytes], bytes]
    multiply: Callable[[bytes, bytes], bytes]  # scalar, point
    multiply_base: Callable[[bytes], bytes]
    from_hash: Callable[[bytes], bytes]  # 64 uniform bytes to a point
    reduce: Callable[[bytes], bytes]  # 64 uniform bytes to a scalar


@cache
def ristretto255() -> Group:
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


def _from_rbcl(rbcl: ModuleType) -> Group:
    def checked(function: Callable[..., bytes], *is_point: bool) -> Callable[..., bytes]:
        # rbcl does not look at what libsodium says of its inputs, so they are looked at here.
        def apply(*values: bytes) -> bytes:
            for value, point in zip(values, is_point, strict=True):
                if point and not rbcl.crypto_core_ristretto255_is_valid_point(value):
                    raise ValueError("these bytes are not a point of ristretto255")
            return bytes(function(*values))

        return apply

    return Group(
        checked(rbcl.crypto_core_ristretto255_add, True, True),
        checked(rbcl.crypto_core_ristretto255_sub, True, True),
        checked(rbcl.crypto_scalarmult_ristretto255, False, True),
        rbcl.crypto_scalarmult_ristretto255_base,
        rbcl.crypto_core_ristretto255_from_hash,
        rbcl.crypto_core_ristretto255_scalar_reduce,
    )


def from_libsodium() -> Group:
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
    return Group(
        call("crypto_core_ristretto255_add", point, point),
        call("crypto_core_ristretto255_sub", point, point),
        call("crypto_scalarmult_ristretto255", scalar, point),
        call("crypto_scalarmult_ristretto255_base", scalar),
        call("crypto_core_ristretto255_from_hash", HASH_BYTES),
        call("crypto_core_ristretto255_scalar_reduce", HASH_BYTES),
    )
