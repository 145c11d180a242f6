"""thinwire: deep learning that sends fewer bytes over the network.

>>> import thinwire as tw
>>> tw.parse("terngrad").merge.value
'int'
"""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

__version__ = "0.2.0"


def _homes() -> dict[str, str]:
    """Public names and their modules, read from the stub, so that they are listed once."""
    stub = ast.parse(Path(__file__).with_suffix(".pyi").read_text(encoding="utf-8"))
    imports = [node for node in stub.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


_HOMES = _homes()
__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Imports a public name when it is first used: the command line need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'thinwire' has no attribute '{name}': it has {', '.join(__all__)}")
    home = _HOMES[name]
    found = importlib.import_module(f"{home}.{name}" if home == __name__ else home)
    found = found if home == __name__ else getattr(found, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names only, not the modules they live in."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__version__"])
