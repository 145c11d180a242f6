"""Compute: seconds of the forward and backward pass, and when each bucket of gradients is ready."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from types import MappingProxyType

from thinwire.errors import LabError
from thinwire.perf.buckets import Bucket
from thinwire.perf.device import Device
from thinwire.perf.network import Network

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
