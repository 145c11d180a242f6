"""Errors of private inference that a user can meet; none of them tells anything secret."""

from __future__ import annotations

from thinwire.errors import PrivateError, ThinwireError


class ModelError(ThinwireError, ValueError):
    """A quantized network, or its file, that cannot be used."""


class MissingError(PrivateError):
    """Something that private inference needs is not installed; names it and how to get it."""


class ProtocolError(PrivateError):
    """The peer sent something that the protocol does not allow."""
