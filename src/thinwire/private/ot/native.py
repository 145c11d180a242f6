"""The door to the native core `thinwire._private`: opens it once, or says in one sentence what is missing."""

from __future__ import annotations

import importlib
from functools import cache
from types import ModuleType

from thinwire.private.errors import MissingError

NOT_BUILT = (
    "private inference needs the native module thinwire._private: install thinwire with a C++17 compiler"
)


@cache
def native() -> ModuleType:
    """The module, with OpenSSL's libcrypto opened."""
    try:
        module = importlib.import_module("thinwire._private")
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
