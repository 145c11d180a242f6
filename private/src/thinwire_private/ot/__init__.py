"""Oblivious transfer, free of sockets: base OT, SoftSpoken extension, KK13, hash, packing."""

from __future__ import annotations

from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.suite import Suite

__all__ = ["OtKind", "Suite"]
