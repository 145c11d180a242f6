"""How a run's gradients travel: plain DDP, one of PyTorch's own hooks, or a thinwire codec."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from thinwire.errors import LabError
from thinwire.plans.plan import idle_text
from thinwire.tensors import Spec
from thinwire_lab.run.recipe import DDP, DDP_FP16, DDP_POWERSGD, CodecChoice, read_codec_choice

POWERSGD_START_STEP = 2  # PyTorch wants the buckets rebuilt first
ONE_BUCKET_MB = 100_000.0  # with two buckets PyTorch's PowerSGD deadlocks on gloo
SAMPLE_STEPS = 1000  # of a run on which options are tried that are parts of one
SAMPLE = tw.Model((Spec("sample", (1024, 1024)),))  # what options are tried on before any process is started


@dataclass(frozen=True)
class HookedModel:
    """A model under DDP with its compressor, if thinwire moves its gradients; or one with local steps."""

    model: Any  # DDP's wrapper; of local steps the net itself
    compressor: tw.Compressor | None
    local: tw.DiLoCo | None = None


def is_pytorch(codec: str) -> bool:
    """Whether a name means PyTorch's own exchange and not a thinwire codec."""
    return codec.partition("@")[0].partition(":")[0].strip() in (DDP, DDP_FP16, DDP_POWERSGD)


def check_codec(codec: str) -> None:
    """Refuse a wrong name or option before any process is started."""
    name, _, option = codec.partition(":")
    if not is_pytorch(codec):
        read_codec_choice(codec).plan(SAMPLE, workers=1, total_steps=SAMPLE_STEPS)
    elif "@" in codec:
        raise LabError(f"{codec!r}: PyTorch's own exchange takes no options behind @")
    elif name == DDP_POWERSGD:
        _rank(option)
    elif option:
        raise LabError(f"{codec!r}: {name} takes no options")


def idle_note(codec: str, net: nn.Module, workers: int) -> str | None:
    """A note if a codec leaves the whole model dense; a warning from a worker would not be seen."""
    choice = read_codec_choice(codec)
    if is_pytorch(codec) or choice.is_auto:
        return None
    return idle_text(choice.plan(tw.Model.of(net), workers, SAMPLE_STEPS), choice.policy(SAMPLE_STEPS))


def attach(
    net: nn.Module, codec: str, seed: int, link_rate: str | None, total_steps: int | None = None
) -> HookedModel:
    """Wrap `net` in DDP and give it the exchange called `codec`, for a run of so many steps."""
    name, _, option = codec.partition(":")
    if not is_pytorch(codec):
        choice = read_codec_choice(codec)
        link = None if link_rate is None else tw.Link(rate=link_rate)
        if choice.weights is not None:
            raise LabError("weights= is a run as FSDP2 makes it, and those are virtual: --network virtual")
        if choice.local is not None:
            return HookedModel(net, None, local_steps(net, choice, seed, total_steps, link=link))
        model = DistributedDataParallel(net, bucket_cap_mb=choice.bucket_mb)
        options = choice.options() | {"total_steps": total_steps, "sensitive": choice.sensitive}
        compressor = tw.compress(model, choice.codec, seed=seed, link=link, **options)
        return HookedModel(model, compressor)
    if name == DDP_POWERSGD:
        return HookedModel(_with_powersgd(net, _rank(option)), None)
    model = DistributedDataParallel(net)
    if name == DDP_FP16:
        model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    return HookedModel(model, None)


def local_steps(
    net: nn.Module, choice: CodecChoice, seed: int, total_steps: int | None, **options: Any
) -> tw.DiLoCo:
    """What exchanges the local steps of a net; collective."""
    asked = {key: value for key, value in choice.options().items() if value is not None}
    local = {} if choice.local is None else asdict(choice.local)
    return tw.DiLoCo(net, codec=choice.codec, seed=seed, total_steps=total_steps, **local, **asked, **options)


def _with_powersgd(net: nn.Module, rank: int) -> DistributedDataParallel:
    from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as powersgd

    model = DistributedDataParallel(net, bucket_cap_mb=ONE_BUCKET_MB)
    state = powersgd.PowerSGDState(
        None, matrix_approximation_rank=rank, start_powerSGD_iter=POWERSGD_START_STEP
    )
    model.register_comm_hook(state, powersgd.powerSGD_hook)
    return model


def _rank(option: str) -> int:
    if not option.isdigit() or int(option) < 1:
        raise LabError(
            f"ddp-powersgd needs a rank, a whole number from 1: write ddp-powersgd:4, not {option!r}"
        )
    return int(option)
