"""The consistency check of the set-up: a receiver that cheated in its trees is caught before the first OT.

The receiver extends CHECK_OTS OTs of random choices x and gives them up. With a random binary matrix C, which
both derive from the message, it sends C x and C V (V has the rows v_i, 128 bits each). The sender, with
q_i = v_i xor x_i Delta, finds C Q = C V xor (C x) Delta in every column, unless trees or choices of the
receiver differ from column to column (Roy, eprint 2022/192, section 4, with the repetition code): 128 rows
of C let that pass with a chance of 2^-128. Whether it passes may depend on bits of Delta that a cheating
receiver guessed: each wrong guess ends the session.

Covered: base OTs and trees of the set-up, in both directions. Not covered: choices that differ from column to
column in later extensions; those still assume a receiver that follows the protocol.
"""

from __future__ import annotations

import numpy as np

from thinwire.errors import LinkError
from thinwire_private.ot.kind import SECURITY_BITS, OtKind
from thinwire_private.ot.primitives import Bytes, Prg, as_bytes, derive
from thinwire_private.ot.softspoken import Receiver, Sender

CHECK_OTS = 256
_PROOF_BYTES = (1 + SECURITY_BITS) * SECURITY_BITS // 8


def check_bytes(kind: OtKind) -> int:
    """The receiver's message: rows, C x, C V."""
    return kind.row_bytes(CHECK_OTS) + _PROOF_BYTES


def prove(receiver: Receiver, session: bytes, prg: Prg) -> bytes:
    """The receiver's message."""
    choices = prg.bits(CHECK_OTS)
    message, batch = receiver.extend(choices)
    proof = _combined(session, bytes(message), np.column_stack([choices, _bits(batch.rows)]))
    return bytes(message) + np.packbits(proof.T, axis=1, bitorder="little").tobytes()


def verify(sender: Sender, session: bytes, kind: OtKind, message: memoryview) -> None:
    """Raise LinkError unless the receiver's message is consistent."""
    size = kind.row_bytes(CHECK_OTS)
    batch = sender.extend(message[:size], CHECK_OTS)
    proof = np.unpackbits(
        as_bytes(message[size:]).reshape(1 + SECURITY_BITS, -1), axis=1, bitorder="little"
    ).T
    delta = np.unpackbits(sender.delta, bitorder="little")
    expected = proof[:, 1:] ^ (proof[:, :1] & delta)
    if not np.array_equal(_combined(session, bytes(message[:size]), _bits(batch.rows)), expected):
        raise LinkError("the peer's oblivious transfers are not consistent: it cheats, or runs another build")


def _bits(rows: Bytes) -> Bytes:
    return np.unpackbits(rows.reshape(-1, SECURITY_BITS // 8), axis=1, bitorder="little")


def _combined(session: bytes, message: bytes, columns: Bytes) -> Bytes:
    """C times the columns over GF(2), C (128 x CHECK_OTS) from the session and the message."""
    stream = Prg(derive(session, "consistency", message)[:16])
    matrix = stream.bits(SECURITY_BITS * CHECK_OTS).reshape(SECURITY_BITS, CHECK_OTS)
    return (matrix.astype(np.int32) @ columns.astype(np.int32) & 1).astype(np.uint8)
