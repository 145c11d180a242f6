"""Errors of private inference that a user can meet; none of them tells anything secret."""

from __future__ import annotations

from thinwire.errors import ThinwireError


class ModelError(ThinwireError, ValueError):
    """A quantized network, or its file, that cannot be used."""
