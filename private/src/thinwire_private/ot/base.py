"""Base OT: Masny-Rindal "endemic" OT over ristretto255; gives the 128 seeds that an extension starts from."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire_private.errors import ProtocolError
from thinwire_private.ot.group import HASH_BYTES, POINT_BYTES, ristretto255
from thinwire_private.ot.labels import derive
from thinwire_private.ot.prg import Prg

KEY_BYTES = 16


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
            raise ProtocolError("the peer's base OT message holds bytes that are no point") from None
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
