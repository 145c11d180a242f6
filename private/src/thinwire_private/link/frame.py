"""A frame: length, sequence number, checksum, payload; a message is cut into frames of at most 16 MiB.

The bytes of a frame, integers little-endian:

    0   u32  length of the payload, at most 2^24; the top bit marks an abort, whose payload is a sentence
    4   u32  sequence number: frames of this direction before this one, modulo 2^32
    8   u32  CRC-32 (as in zlib) over bytes 0..7 and the payload
    12  ...  payload

A flipped bit, a lost, doubled or reordered frame is noticed. The checksum does not stop an attacker
on the way: that is what TLS is for.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from thinwire.errors import LinkError

MAX_FRAME_BYTES = 1 << 24
HEADER = struct.Struct("<III")
FRAME_OVERHEAD_BYTES = HEADER.size
MAX_REASON_BYTES = 500
_ABORT = 1 << 31


class Header(NamedTuple):
    """What stands before a payload."""

    num_bytes: int
    sequence: int
    checksum: int
    is_abort: bool


def num_frames(num_bytes: int) -> int:
    """Frames of a message; an empty message is not sent at all.

    >>> num_frames(0), num_frames(1), num_frames(1 << 24), num_frames((1 << 24) + 1)
    (0, 1, 1, 2)
    """
    return -(-num_bytes // MAX_FRAME_BYTES)


def framed_bytes(num_bytes: int) -> int:
    """Bytes of a message on the wire, as the predictor counts them.

    >>> framed_bytes(100)
    112
    """
    return num_bytes + FRAME_OVERHEAD_BYTES * num_frames(num_bytes)


def cut(message: memoryview) -> Iterator[memoryview]:
    """The payloads of a message, in order."""
    for start in range(0, len(message), MAX_FRAME_BYTES):
        yield message[start : start + MAX_FRAME_BYTES]


def pack_header(payload: memoryview, sequence: int, is_abort: bool = False) -> bytes:
    """The header of a payload."""
    length = len(payload) | (_ABORT if is_abort else 0)
    return HEADER.pack(length, sequence & 0xFFFFFFFF, _checksum(length, sequence, payload))


def read_header(data: bytes | bytearray | memoryview, sequence: int) -> Header:
    """Read a header and refuse what cannot be true, before anything is allocated for the payload."""
    length, told, checksum = HEADER.unpack(data)
    header = Header(length & ~_ABORT, told, checksum, bool(length & _ABORT))
    limit = MAX_REASON_BYTES if header.is_abort else MAX_FRAME_BYTES
    if not 1 <= header.num_bytes <= limit:
        raise LinkError(
            f"the peer announced a frame of {header.num_bytes} bytes, allowed are 1 to {limit}: "
            "it does not speak thinwire's protocol, or the connection is damaged"
        )
    if told != sequence & 0xFFFFFFFF:
        raise LinkError(
            f"frame {told} came where frame {sequence & 0xFFFFFFFF} was due: the connection is damaged, "
            "start again"
        )
    return header


def check_payload(header: Header, payload: memoryview) -> None:
    """Refuse a payload that is not the one that was sent."""
    length = header.num_bytes | (_ABORT if header.is_abort else 0)
    if _checksum(length, header.sequence, payload) != header.checksum:
        raise LinkError(
            f"the checksum of frame {header.sequence} does not fit its bytes: "
            "the connection is damaged, start again"
        )


def _checksum(length: int, sequence: int, payload: memoryview) -> int:
    return zlib.crc32(payload, zlib.crc32(struct.pack("<II", length, sequence & 0xFFFFFFFF)))
