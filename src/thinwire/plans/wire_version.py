"""The version of the bytes on the wire, and the one in which the bytes of a codec last changed."""

from __future__ import annotations

WIRE_VERSION = 3
_SCALED_FP16 = 3  # fp16 got its scale; all other bytes are those of version 2
_UNITS = 2


def bytes_since(text: str) -> int:
    """The version in which the bytes of the codecs that a text names last changed.

    What was recorded with that version or a later one still holds.

    >>> bytes_since("qsgd:4"), bytes_since("topk:0.01 >> fp16")
    (2, 3)
    """
    return _SCALED_FP16 if "fp16" in text else _UNITS
