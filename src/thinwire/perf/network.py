"""A network as a table of its tensors, the device it runs on, and when its buckets are ready."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType

from thinwire.errors import LabError

EMBEDDING, LAST = "embedding", "last"  # kinds of layers that policies keep dense


@dataclass(frozen=True)
class Layer:
    """One tensor. `uses`: multiplications that each of its elements takes part in, per example.

    >>> Layer("conv.weight", (64, 3, 7, 7), uses=112 * 112).macs
    118013952
    """

    name: str
    shape: tuple[int, ...]
    uses: int = 0
    kind: str = ""

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def macs(self) -> int:
        """Multiply-and-adds of a forward pass of one example."""
        return self.numel * self.uses


@dataclass(frozen=True)
class Network:
    """Layers in the order of the forward pass, and the defaults of a forecast.

    `utilisation` is the share of a device's peak that training such a network is assumed to reach; it is
    used where nobody has measured examples per second.
    """

    name: str
    layers: tuple[Layer, ...]
    batch: int = 32  # examples a worker and step
    example: str = "image"
    utilisation: float = 0.25
    source: str = ""
    tokens: int = 0  # of an example, if it has tokens

    def __post_init__(self) -> None:
        if not self.layers:
            raise LabError(f"network {self.name} has no tensors: there is nothing to send")
        if self.batch < 1:
            raise LabError(f"batch={self.batch}: a worker takes at least one example a step")

    @cached_property
    def numel(self) -> int:
        return sum(layer.numel for layer in self.layers)

    @cached_property
    def macs(self) -> int:
        return sum(layer.macs for layer in self.layers)

    def with_batch(self, batch: int | None) -> Network:
        return self if batch is None else replace(self, batch=batch)


def joined(*tables: Iterable[Layer]) -> tuple[Layer, ...]:
    """Several tables one behind the other."""
    return tuple(layer for table in tables for layer in table)


def weighted(name: str, shape: tuple[int, ...], uses: int, kind: str = "", bias: bool = True) -> list[Layer]:
    """A weight, and a bias for each of its rows."""
    layers = [Layer(f"{name}.weight", shape, uses, kind)]
    return [*layers, Layer(f"{name}.bias", (shape[0],), 0, kind)] if bias else layers


def norm(name: str, width: int, bias: bool = True) -> list[Layer]:
    """Scale and shift of a normalisation."""
    return [Layer(f"{name}.{what}", (width,)) for what in ("weight", "bias")[: 1 + bias]]


COPY_BYTES = 8  # copying a float32 reads 4 bytes and writes 4
REACHED = 0.8  # share of a data sheet's memory rate that a copy is assumed to reach


@dataclass(frozen=True)
class Device:
    """Seconds to copy an element, flops a second of a codec's products, and the peak of training.

    `contends`: the share of a codec's time by which it holds up the backward pass that runs beside it. 1 on
    a device that does both (Agarwal et al. 2022: overlapping them gains nothing), 0 where the exchange thread
    has a core of its own. `wire_contends`: the same of the time on the wire, where the device's processors
    move the bytes (TCP of workers that share cores); 0 where network cards do. `triton`: whether codecs run
    by the kernels for GPUs, whose costs were computed.
    """

    name: str
    copy_s: float
    product_flops: float
    peak_flops: float
    contends: float = 1.0
    source: str = "given"
    wire_contends: float = 0.0
    triton: bool = False

    def crowded(self, share: float) -> Device:
        """The device as one worker sees it when all run at once and each gets this share of it.

        Then nothing that processors do is for free beside the backward pass, neither codecs nor TCP.
        """
        if not 0 < share <= 1:
            raise LabError(f"share={share:g} of a device must be above 0 and at most 1")
        return replace(
            self,
            copy_s=self.copy_s / share,
            product_flops=share * self.product_flops,
            peak_flops=share * self.peak_flops,
            contends=self.contends if share == 1 else 1.0,
            wire_contends=self.wire_contends if share == 1 else 1.0,
        )


def _gpu(name: str, gbytes: float, fp32_tflops: float, peak_tflops: float, triton: bool = False) -> Device:
    source = (
        f"data sheet: {gbytes:g} GB/s, {peak_tflops:g} Tflop/s; assumed: codecs move memory at 80 % of that "
        "and hold up the backward pass; no codec was run on it"
    )
    copy_s = COPY_BYTES / (REACHED * gbytes * 1e9)
    return Device(name, copy_s, 0.5e12 * fp32_tflops, peak_tflops * 1e12, 1.0, source, triton=triton)


# copy_ of 6,553,600 elements took 2.7 to 3.1 ms (speed.md, AVX2). gradiveq:8 takes 45.9 ms in one piece,
# 26.2 of them on the wire (AVX-512): 128 flops an element in 19.7 ms less 1.1 copies.
_CPU = Device(
    "cpu",
    2.9e-3 / 6_553_600,
    128 * 6_553_600 / (19.7e-3 - 1.1 * 2.9e-3),
    50e9,
    0.0,
    "one core, docs/background/speed.md: copy_ 2.9 ms for 6.55 M elements, 51 Gflop/s in gradiveq's products",
)

DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        device.name: device
        for device in (
            _CPU,
            _gpu("gtx1080", 320, 8.9, 8.9),
            _gpu("p100", 732, 10.6, 21.2),
            _gpu("v100", 900, 15.7, 125),
            _gpu("a100", 1555, 19.5, 312, triton=True),
            _gpu("h100", 3350, 67, 989, triton=True),
        )
    }
)


def device_named(name: str) -> Device:
    if name not in DEVICES:
        close = difflib.get_close_matches(name, DEVICES, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise LabError(f'there is no device "{name}": {hint}known are {", ".join(DEVICES)}')
    return DEVICES[name]


FIRST_MB = 1.0  # DDP's first bucket is small, so that the exchange begins early
BUCKET_MB = 25.0
MIB = 1 << 20

Bucket = tuple[Layer, ...]


def ddp_buckets(layers: Iterable[Layer], bucket_mb: float = BUCKET_MB) -> tuple[Bucket, ...]:
    """From the last layer to the first, as backward goes; a bucket is closed when it has reached its size."""
    buckets: list[Bucket] = []
    waiting: list[Layer] = []
    for layer in reversed(tuple(layers)):
        waiting.append(layer)
        limit = (bucket_mb if buckets else min(FIRST_MB, bucket_mb)) * MIB
        if 4 * sum(other.numel for other in waiting) >= limit:
            buckets.append(tuple(waiting))
            waiting = []
    return (*buckets, tuple(waiting)) if waiting else tuple(buckets)


BACKWARD = 2.0  # times the forward pass: gradients of inputs and of weights
FLOPS_A_MAC = 2.0

# Images a second of one GPU: TernGrad's Figure 5, digitised, +-3. They profiled real GPUs for these.
FIGURE5 = "TernGrad's Figure 5, one GPU, digitised"
RATES: Mapping[tuple[str, str], float] = MappingProxyType(
    {
        ("gtx1080", "alexnet"): 394,
        ("gtx1080", "googlenet"): 174,
        ("gtx1080", "vgg-a"): 95,
        ("p100", "alexnet"): 436,
        ("p100", "googlenet"): 194,
        ("p100", "vgg-a"): 108,
    }
)


@dataclass(frozen=True)
class Compute:
    """The passes of one worker's batch; `ready_s` counts from the start of the backward pass."""

    batch: int
    forward_s: float
    backward_s: float
    ready_s: tuple[float, ...]
    source: str = "given"

    @property
    def examples_per_s(self) -> float:
        return self.batch / (self.forward_s + self.backward_s)


def compute_of(
    network: Network, buckets: tuple[Bucket, ...], device: Device, examples_per_s: float | None = None
) -> Compute:
    """Time goes to layers by their multiplications; a bucket is ready when its last layer is.

    The rate is what is given, else a published one of this device and network, else the assumed share of the
    device's peak.
    """
    rate, source = _rate(network, device, examples_per_s)
    total = network.batch / rate
    forward = total / (1 + BACKWARD)
    work = [sum(layer.macs for layer in bucket) for bucket in buckets]
    if not sum(work):
        work = [sum(layer.numel for layer in bucket) for bucket in buckets]
    ready = tuple(BACKWARD * forward * done / sum(work) for done in accumulate(work))
    return Compute(network.batch, forward, total - forward, ready, source)


def _rate(network: Network, device: Device, given: float | None) -> tuple[float, str]:
    if given is not None:
        if not given > 0:
            raise LabError(f"examples per second: {given:g} must be above 0")
        return given, "given"
    known = RATES.get((device.name, network.name))
    if known is not None:
        return known, FIGURE5
    if not network.macs:
        raise LabError(
            f"how fast {network.name} runs on {device.name} is not in its shapes: give --examples-per-s"
        )
    flops = FLOPS_A_MAC * (1 + BACKWARD) * network.macs
    share = network.utilisation
    return (
        share * device.peak_flops / flops,
        f"assumed: {share:.0%} of {device.name}'s {device.peak_flops / 1e12:g} Tflop/s",
    )
