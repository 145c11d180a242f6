"""Private inference: a quantized network run between two parties, neither of which sees what the other holds.

Reading order: private/README.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinwire_private.client import Client
    from thinwire_private.server import Limits, Server

__all__ = ["Client", "Limits", "Server"]
__version__ = "0.2.0"
_SERVER = "thinwire_private.server"
_HOMES = {"Client": "thinwire_private.client", "Limits": _SERVER, "Server": _SERVER}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(
            f"module 'thinwire_private' has no attribute {name!r}: it has {', '.join(__all__)}"
        )
    return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
