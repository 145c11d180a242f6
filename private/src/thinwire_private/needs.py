"""Needs: what private inference must find on a machine, checked before anything else happens."""

from __future__ import annotations

from thinwire_private.ot.group import ristretto255
from thinwire_private.ot.native import native


def check_needs() -> None:
    """Raise MissingError, one sentence with the way out, unless AES and ristretto255 are at hand."""
    native()
    ristretto255()
