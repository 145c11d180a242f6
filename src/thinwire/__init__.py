"""thinwire: deep learning that sends fewer bytes over the network.

>>> import thinwire as tw
>>> tw.parse("terngrad").merge.value
'int'
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinwire.codecs.catalog import parse
    from thinwire.codecs.codec import Codec
    from thinwire.codecs.coders.base import Coder, Context, Merge, Packer
    from thinwire.codecs.coders.floats import Cast, Dense
    from thinwire.codecs.coders.gather import GatherPacker
    from thinwire.codecs.coders.natural import Natural
    from thinwire.codecs.coders.qsgd import QSGD
    from thinwire.codecs.coders.rangefloat import RangeFloat
    from thinwire.codecs.coders.sign import Sign
    from thinwire.codecs.coders.terngrad import TernGrad
    from thinwire.codecs.stages.base import LinearStage, SelectingStage
    from thinwire.codecs.stages.clip import Clip
    from thinwire.codecs.stages.dct import DCT
    from thinwire.codecs.stages.dgc import DGC
    from thinwire.codecs.stages.fft import FFT
    from thinwire.codecs.stages.fourier import Fourier
    from thinwire.codecs.stages.gradiveq import GradiVeQ
    from thinwire.codecs.stages.powersgd import PowerSGD
    from thinwire.codecs.stages.topk import TopK
    from thinwire.errors import ThinwireError
    from thinwire.exchange.report import Report
    from thinwire.groups.emulated import Link
    from thinwire.hooks.compressor import Compressor
    from thinwire.hooks.ddp import compress, ddp_hook
    from thinwire.plans.model import Model
    from thinwire.plans.plan import Plan
    from thinwire.plans.policy import Policy
    from thinwire.tensors.key import Key
    from thinwire.tensors.layout import Layout
    from thinwire.texts.options import option

__version__ = "0.1.0"
__all__ = [
    "Cast",
    "Clip",
    "Codec",
    "Coder",
    "Compressor",
    "Context",
    "DCT",
    "DGC",
    "Dense",
    "FFT",
    "Fourier",
    "GatherPacker",
    "GradiVeQ",
    "Key",
    "Layout",
    "LinearStage",
    "Link",
    "Merge",
    "Model",
    "Natural",
    "Packer",
    "Plan",
    "Policy",
    "PowerSGD",
    "QSGD",
    "RangeFloat",
    "Report",
    "SelectingStage",
    "Sign",
    "TernGrad",
    "ThinwireError",
    "TopK",
    "compress",
    "ddp_hook",
    "option",
    "parse",
]
# Where the public names live: imported when first used, so that the command line need not wait for torch.
_HOMES = {
    "Cast": "codecs.coders.floats",
    "Clip": "codecs.stages.clip",
    "Codec": "codecs.codec",
    "Coder": "codecs.coders.base",
    "Compressor": "hooks.compressor",
    "Context": "codecs.coders.base",
    "DCT": "codecs.stages.dct",
    "DGC": "codecs.stages.dgc",
    "Dense": "codecs.coders.floats",
    "FFT": "codecs.stages.fft",
    "Fourier": "codecs.stages.fourier",
    "GatherPacker": "codecs.coders.gather",
    "GradiVeQ": "codecs.stages.gradiveq",
    "Key": "tensors.key",
    "Layout": "tensors.layout",
    "LinearStage": "codecs.stages.base",
    "Link": "groups.emulated",
    "Merge": "codecs.coders.base",
    "Model": "plans.model",
    "Natural": "codecs.coders.natural",
    "Packer": "codecs.coders.base",
    "Plan": "plans.plan",
    "Policy": "plans.policy",
    "PowerSGD": "codecs.stages.powersgd",
    "QSGD": "codecs.coders.qsgd",
    "RangeFloat": "codecs.coders.rangefloat",
    "Report": "exchange.report",
    "SelectingStage": "codecs.stages.base",
    "Sign": "codecs.coders.sign",
    "TernGrad": "codecs.coders.terngrad",
    "ThinwireError": "errors",
    "TopK": "codecs.stages.topk",
    "compress": "hooks.ddp",
    "ddp_hook": "hooks.ddp",
    "option": "texts.options",
    "parse": "codecs.catalog",
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
