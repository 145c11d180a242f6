"""The only importer of `thinwire_private._native`: loads it once, or says in one sentence what is missing."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from thinwire_private.errors import MissingError

NOT_BUILT = (
    "private inference needs its native module: install thinwire-private where a C++17 compiler is installed"
)


@cache
def native() -> ModuleType:
    """The module, with OpenSSL's libcrypto opened."""
    try:
        module = importlib.import_module("thinwire_private._native")
    except ImportError:
        raise MissingError(NOT_BUILT) from None
    problem = module.open_libcrypto()
    if problem:
        raise MissingError(f"private inference needs AES: {problem}")
    return module


def native_problem() -> str | None:
    """What is missing, or None when all is there."""
    try:
        native()
    except MissingError as error:
        return str(error)
    return None
