"""thinwire: deep learning that sends fewer bytes over the network.

>>> import thinwire as tw
>>> tw.parse("terngrad").merge.value
'int'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinwire.catalog import parse
    from thinwire.codec import Codec
    from thinwire.errors import ThinwireError
    from thinwire.groups.emulated import Link
    from thinwire.hooks.compressor import Compressor
    from thinwire.hooks.ddp import compress, ddp_hook
    from thinwire.plan import Plan
    from thinwire.policy import Model, Policy
    from thinwire.report import Report

__version__ = "0.1.0"
__all__ = [
    "Codec",
    "Compressor",
    "Link",
    "Model",
    "Plan",
    "Policy",
    "Report",
    "ThinwireError",
    "compress",
    "ddp_hook",
    "parse",
]
# Where the public names live: imported when first used, so that the command line need not wait for torch.
_HOMES = {
    "Codec": "codec",
    "Compressor": "hooks.compressor",
    "Link": "groups.emulated",
    "Model": "policy",
    "Plan": "plan",
    "Policy": "policy",
    "Report": "report",
    "ThinwireError": "errors",
    "compress": "hooks.ddp",
    "ddp_hook": "hooks.ddp",
    "parse": "catalog",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'thinwire' has no attribute '{name}': it has {', '.join(__all__)}")
    found = getattr(importlib.import_module(f"thinwire.{_HOMES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    """Public names only: the modules they live in are nobody's business but thinwire's."""
    return sorted([*__all__, "__doc__", "__file__", "__name__", "__version__"])
