"""thinwire: deep learning that sends fewer bytes over the network.

>>> import thinwire as tw
>>> tw.parse("terngrad").merge.value
'int'
"""

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
