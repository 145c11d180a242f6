"""Labels: how the session id goes into every key and hash, each use under a name of its own."""

from __future__ import annotations

import hashlib

PROTOCOL = b"thinwire private 1"


def derive(session: bytes, label: str, *parts: bytes) -> bytes:
    """64 bytes bound to the session, the label and the parts; lengths are hashed too, so nothing can
    slide."""
    digest = hashlib.sha512(PROTOCOL)
    for part in (session, label.encode(), *parts):
        digest.update(len(part).to_bytes(8, "little") + part)
    return digest.digest()
