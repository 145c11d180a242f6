"""The old name of thinwire_private, a package of its own now; this name goes with the next release."""

from __future__ import annotations

import warnings
from typing import Any

from thinwire.errors import MissingPackageError


def __getattr__(name: str) -> Any:
    if name.startswith("__"):  # what inspect and doctest look for
        raise AttributeError(f"module 'thinwire.private' has no attribute {name!r}")
    try:
        import thinwire_private
    except ImportError as error:
        raise MissingPackageError(
            "private inference is a package of its own: pip install thinwire-private"
        ) from error
    warnings.warn("thinwire.private is thinwire_private now", DeprecationWarning, stacklevel=2)
    return getattr(thinwire_private, name)
