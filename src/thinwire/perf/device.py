"""A device: how fast it moves memory and multiplies. Of GPUs data sheets, not measurements."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from thinwire.errors import LabError

COPY_BYTES = 8  # copying a float32 reads 4 bytes and writes 4
REACHED = 0.8  # share of a data sheet's memory rate that a copy is assumed to reach


@dataclass(frozen=True)
class Device:
    """Seconds to copy an element, flops a second of a codec's products, and the peak of training.

    `contends`: the share of a codec's time by which it holds up the backward pass that runs beside it. 1 on
    a device that does both (Agarwal et al. 2022: overlapping them gains nothing), 0 where the exchange thread
    has a core of its own. `wire_contends`: the same of the time on the wire, where the device's processors
    move the bytes (TCP of workers that share cores); 0 where network cards do.
    """

    name: str
    copy_s: float
    product_flops: float
    peak_flops: float
    contends: float = 1.0
    source: str = "given"
    wire_contends: float = 0.0

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


def _gpu(name: str, gbytes: float, fp32_tflops: float, peak_tflops: float) -> Device:
    source = (
        f"data sheet: {gbytes:g} GB/s, {peak_tflops:g} Tflop/s; assumed: codecs move memory at 80 % of that "
        "and hold up the backward pass; no codec was run on it"
    )
    copy_s = COPY_BYTES / (REACHED * gbytes * 1e9)
    return Device(name, copy_s, 0.5e12 * fp32_tflops, peak_tflops * 1e12, 1.0, source)


# copy_ of 6,553,600 elements took 2.7 to 3.1 ms (docs/speed.md, AVX2). gradiveq:8 takes 45.9 ms in one piece,
# 26.2 of them on the wire (AVX-512): 128 flops an element in 19.7 ms less 1.1 copies.
_CPU = Device(
    "cpu",
    2.9e-3 / 6_553_600,
    128 * 6_553_600 / (19.7e-3 - 1.1 * 2.9e-3),
    50e9,
    0.0,
    "one core, docs/speed.md: copy_ 2.9 ms for 6.55 M elements, 51 Gflop/s in gradiveq's products",
)

DEVICES: Mapping[str, Device] = MappingProxyType(
    {
        device.name: device
        for device in (
            _CPU,
            _gpu("gtx1080", 320, 8.9, 8.9),
            _gpu("p100", 732, 10.6, 21.2),
            _gpu("v100", 900, 15.7, 125),
            _gpu("a100", 1555, 19.5, 312),
            _gpu("h100", 3350, 67, 989),
        )
    }
)


def device_named(name: str) -> Device:
    if name not in DEVICES:
        close = difflib.get_close_matches(name, DEVICES, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        raise LabError(f'there is no device "{name}": {hint}known are {", ".join(DEVICES)}')
    return DEVICES[name]
