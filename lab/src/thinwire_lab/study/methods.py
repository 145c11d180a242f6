"""Methods compared at equal bits: each is a ladder of codecs; the one nearest to a target is taken."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.groups.thread import ThreadGroup
from thinwire.plans.lane import dry_context
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout

NO_MEMORY = "none"  # one step, one gradient: nothing was held back before
CPU = torch.device("cpu")
SELECTED_RUNGS = 20_000  # ratios are multiples of 1/20000: fine enough for 0.1 % of the bits
MOST_SELECTED = 0.5  # beyond that selecting saves nothing
SLICE = 256
VALUES = "rangefloat:10"  # the paper's format for what is selected
# d whose ratio 256 / d gives d back in floating point; gradiveq refuses the others
WIDTHS = tuple(d for d in range(1, SLICE // 2 + 1) if SLICE / (SLICE / d) == d)
_SELECTING = int(MOST_SELECTED * SELECTED_RUNGS)
TOLERANCE = 0.05  # a fit farther from its target is shown with its own bits and not compared


@dataclass(frozen=True)
class Snapshot:
    """The tensors that the default policy compresses, end to end, as they were in one step.

    `before` holds the same tensors in the steps right before it, oldest first, for codecs that learn.
    """

    subject: str
    moment: str  # early, middle or late
    step: int  # counted from 1
    num_steps: int
    loss: float  # mean over the recorded steps
    layout: Layout
    gradient: Tensor = field(repr=False)
    before: tuple[Tensor, ...] = field(repr=False)
    dense_names: tuple[str, ...]  # tensors of the model that stay dense and are not looked at

    @property
    def name(self) -> str:
        return f"{self.subject}, {self.moment}"

    @property
    def numel(self) -> int:
        return self.layout.numel

    def tensors(self, flat: Tensor) -> dict[str, Tensor]:
        """A flat buffer as its tensors, each flattened in the order of memory."""
        return {name: flat[piece] for name, piece in zip(self.layout.names, self.layout.slices, strict=True)}


def relative_error(x: Tensor, decoded: Tensor) -> float:
    """|x - decoded| / |x|; 0 for zeros sent as zeros."""
    energy, error = float(x.double().norm()), float((x.double() - decoded.double()).norm())
    return error / energy if energy > 0 else error


def plan_for(codec: str, layout: Layout) -> Plan:
    """The codec for all tensors; those that it refuses stay dense, and count with all their bits."""
    return Plan.of(Policy.of(codec, keep_dense=()), Model(layout.specs), 1, NO_MEMORY)


def planned_bits(codec: str, layout: Layout, step: int = 0) -> float:
    """Bits per element in a worker's payload, places and scales included; a basis sent once is not."""
    lanes = plan_for(codec, layout).lanes(layout, dry_context(1), step)
    packers = [part.packer for lane in lanes for part in lane.parts]
    payload = sum(packer.num_granules * packer.granule_bytes for packer in packers)
    scales = 4 * sum(lane.bound.packer.max_words for lane in lanes)
    return 8 * (payload + scales) / layout.numel


def passed_through(codec: str, snapshot: Snapshot, warm_up: int = 0, seed: int = 0) -> Tensor:
    """What arrives of a gradient: the engine on a world of one, without a memory.

    1. the engine sees the last `warm_up` gradients before the snapshot, as a codec that learns needs them
    2. then the snapshot's own: that is returned
    """
    [group] = ThreadGroup.make(1)
    engine = Engine(plan_for(codec, snapshot.layout), group, CPU, seed, error_every=0)
    earlier = snapshot.before[len(snapshot.before) - warm_up :]
    for gradient in (*earlier, snapshot.gradient):
        buffer = gradient.clone()
        engine.exchange(Bucket(buffer, snapshot.layout))
        engine.end_step()
    return buffer


@dataclass(frozen=True)
class Method:
    """A way to compress. `text(rung, window)` is its codec; with every rung it sends more bits.

    `window` is the number of earlier steps at hand; `learns` says that the codec must see them first.
    """

    name: str
    rungs: int
    text: Callable[[int, int], str]
    learns: bool = False


def selected_share(rung: int) -> float:
    """The share that is selected on a rung.

    >>> selected_share(2999)
    0.15
    """
    return round((rung + 1) / SELECTED_RUNGS, 6)


def _fft(chunk: str) -> Callable[[int, int], str]:
    return lambda rung, _: f"fft:{round(1 - selected_share(rung), 6)!r},chunk={chunk}"


def _topk(stage: str, coder: str) -> Callable[[int, int], str]:
    return lambda rung, _: f"{stage}topk:{selected_share(rung)!r} >> {coder}"


def _gradiveq(coder: str) -> Callable[[int, int], str]:
    def text(rung: int, window: int) -> str:
        ratio = SLICE / WIDTHS[rung]
        return f"gradiveq:{ratio!r},slice={SLICE},layers=all,sample={max(1, window)} >> {coder}"

    return text


_METHODS = (
    Method("fft", _SELECTING, _fft("4096")),
    Method("fft whole", _SELECTING, _fft("tensor")),
    Method("dct", _SELECTING, _topk("dct >> ", VALUES)),
    Method("topk", _SELECTING, _topk("", VALUES)),
    Method("topk fp32", _SELECTING, _topk("", "dense")),
    Method("terngrad", 1, lambda rung, _: "terngrad"),
    Method("qsgd", 7, lambda rung, _: f"qsgd:{2 + rung}"),
    Method("qsgd l2", 7, lambda rung, _: f"qsgd:{2 + rung},norm=l2"),
    Method("gradiveq", len(WIDTHS), _gradiveq("dense"), learns=True),
    Method("gradiveq qsgd:8", len(WIDTHS), _gradiveq("qsgd:8"), learns=True),
)
METHODS: Mapping[str, Method] = MappingProxyType({method.name: method for method in _METHODS})


def read_methods(text: str) -> Sequence[Method]:
    """Names separated by commas; "all" is all of them."""
    names = list(METHODS) if text == "all" else [name.strip() for name in text.split(",") if name.strip()]
    for name in names:
        if name not in METHODS:
            raise LabError(f'--methods: there is no method "{name}": known are {", ".join(METHODS)}')
    if not names:
        raise LabError(f"no method named: give --methods all, or some of {', '.join(METHODS)}")
    return [METHODS[name] for name in dict.fromkeys(names)]


@dataclass(frozen=True)
class MethodFit:
    """A codec text, the bits per element that it plans to send, and the bits that were asked for."""

    method: Method
    codec: str
    bits: float
    target: float

    @property
    def meets(self) -> bool:
        return abs(self.bits - self.target) <= TOLERANCE * self.target


def fit_method(method: Method, layout: Layout, target: float, window: int = 0) -> MethodFit:
    """Bisection: bits grow with the rung, so halve the ladder around the target, then take the nearer end."""
    low, high = 0, method.rungs - 1
    while high - low > 1:
        middle = (low + high) // 2
        if _bits(method, middle, layout, window) <= target:
            low = middle
        else:
            high = middle
    ends = [(_bits(method, rung, layout, window), rung) for rung in dict.fromkeys((low, high))]
    bits, rung = min(ends, key=lambda end: abs(end[0] - target))
    return MethodFit(method, method.text(rung, window), bits, target)


def _bits(method: Method, rung: int, layout: Layout, window: int) -> float:
    """In the phase in which it compresses, which comes after what it learnt."""
    step = max(1, window) + 1 if method.learns else 0
    return planned_bits(method.text(rung, window), layout, step)
