"""The public names and where they live: the one list of them, read by type checkers and by __init__.py."""

from thinwire import optim as optim
from thinwire.codecs.clip import Clip as Clip
from thinwire.codecs.codec import Codec as Codec
from thinwire.codecs.codec import parse as parse
from thinwire.codecs.coder import (
    Coder as Coder,
)
from thinwire.codecs.coder import (
    Context as Context,
)
from thinwire.codecs.coder import (
    GatherPacker as GatherPacker,
)
from thinwire.codecs.coder import (
    Merge as Merge,
)
from thinwire.codecs.coder import (
    Packer as Packer,
)
from thinwire.codecs.fft import DCT as DCT
from thinwire.codecs.fft import FFT as FFT
from thinwire.codecs.fft import Fourier as Fourier
from thinwire.codecs.floats import Cast as Cast
from thinwire.codecs.floats import Dense as Dense
from thinwire.codecs.gradiveq import GradiVeQ as GradiVeQ
from thinwire.codecs.natural import Natural as Natural
from thinwire.codecs.powersgd import PowerSGD as PowerSGD
from thinwire.codecs.qsgd import QSGD as QSGD
from thinwire.codecs.rangefloat import RangeFloat as RangeFloat
from thinwire.codecs.rotate import Rotate as Rotate
from thinwire.codecs.rotated import Rotated as Rotated
from thinwire.codecs.sign import Sign as Sign
from thinwire.codecs.sparseloco import Bins as Bins
from thinwire.codecs.sparseloco import SparseLoCo as SparseLoCo
from thinwire.codecs.stage import LinearStage as LinearStage
from thinwire.codecs.stage import SelectingStage as SelectingStage
from thinwire.codecs.terngrad import TernGrad as TernGrad
from thinwire.codecs.topk import DGC as DGC
from thinwire.codecs.topk import TopK as TopK
from thinwire.errors import ThinwireError as ThinwireError
from thinwire.exchange.report import Report as Report
from thinwire.groups.wrappers import Link as Link
from thinwire.hooks.compressor import Compressor as Compressor
from thinwire.hooks.ddp import compress as compress
from thinwire.hooks.ddp import ddp_hook as ddp_hook
from thinwire.hooks.diloco import DiLoCo as DiLoCo
from thinwire.hooks.exchange import Exchange as Exchange
from thinwire.hooks.fsdp import ShardedCompressor as ShardedCompressor
from thinwire.plans.plan import Plan as Plan
from thinwire.plans.policy import Model as Model
from thinwire.plans.policy import Policy as Policy
from thinwire.tensors import Key as Key
from thinwire.tensors import Layout as Layout
from thinwire.texts import option as option

__all__: list[str]
__version__: str
