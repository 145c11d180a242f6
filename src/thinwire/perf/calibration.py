"""A calibration: what a probe found out about links, codecs and machines."""

from __future__ import annotations

import os
import platform
import re
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

from thinwire.errors import LabError
from thinwire.kernels import backends
from thinwire.perf.link import LinkModel, Timing
from thinwire.perf.network import COPY_BYTES, Device


def machine_kind() -> str:
    """Processor, cores that this process may use, and the kernels that run on it.

    >>> "cores" in machine_kind()
    True
    """
    return f"{_processor()}, {usable_cores()} cores, {next(iter(backends()))}"


def usable_cores() -> int:
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:  # not on macOS
        return os.cpu_count() or 1


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()


@dataclass(frozen=True)
class CodecSpeed:
    """Seconds an element of the gradient, stage by stage, as one worker sees them while all of them run.

    `payload` is per element and per worker whose payload is decoded: codecs that gather pay it p times.
    """

    prepare: float = 0.0  # before ranks agree: statistics, stages that need the whole lane
    encode: float = 0.0
    keep: float = 0.0  # what was not sent, while the payload travels
    merge: float = 0.0  # an element of one payload added to a sum
    decode: float = 0.0
    payload: float = 0.0
    finish: float = 0.0  # behind the last part: the inverse of stages that need the whole lane
    tensor: float = 0.0  # seconds a tensor: a loop over them
    part: float = 0.0  # seconds a part of a lane: calls, buffers

    @property
    def an_element(self) -> float:
        """Of all stages together, one payload."""
        stages = self.prepare, self.encode, self.keep, self.merge, self.decode, self.payload, self.finish
        return sum(stages)

    def times(self, factor: float) -> CodecSpeed:
        return CodecSpeed(*(factor * getattr(self, f.name) for f in fields(self)))

    def plus(self, other: CodecSpeed) -> CodecSpeed:
        return CodecSpeed(*(getattr(self, f.name) + getattr(other, f.name) for f in fields(self)))


@dataclass(frozen=True)
class LinkCost:
    """A link of a codec: multiples of a copy, flops an element, and the share of numbers it hands on."""

    copies: CodecSpeed
    source: str
    encode_flops: float = 0.0
    decode_flops: float = 0.0
    hands_on: float = 1.0

    def on(self, device: Device) -> CodecSpeed:
        products = CodecSpeed(
            encode=self.encode_flops / device.product_flops, decode=self.decode_flops / device.product_flops
        )
        return self.copies.times(device.copy_s).plus(products)


MEASURED = "measured on a CPU with AVX2, in multiples of copy_ (docs/background/speed.md)"
MOVED = "assumed: bytes moved, in multiples of a copy"
ROTATED = "measured on a CPU with AVX-512, in multiples of copy_ (tools/rotation_speed.py, bench kernels)"
COMPUTED = "computed: bytes that the kernels for GPUs load and store (docs/background/gpu.md), never timed"
SPLIT = f"{MEASURED}; its split between payloads and the rest is assumed"
RESIDUAL = CodecSpeed(encode=1.5, keep=1.5)  # assumed: e joins (12 bytes an element), x - own is kept (12)

# encode of speed.md is prepare + encode here; its merge is of 4 payloads, here of one; its decode of
# codecs that gather is of 4 payloads
LINK_COSTS: Mapping[str, LinkCost] = MappingProxyType(
    {
        "dense": LinkCost(CodecSpeed(), "sent as it lies in memory"),
        "fp16": LinkCost(CodecSpeed(prepare=0.5, encode=0.75, decode=0.75), MOVED),
        "bf16": LinkCost(CodecSpeed(encode=0.75, decode=0.75), MOVED),
        "terngrad": LinkCost(CodecSpeed(prepare=0.74, encode=0.90, merge=0.20, decode=0.66), MEASURED),
        "ternary": LinkCost(CodecSpeed(prepare=0.50, encode=0.90, merge=0.20, decode=0.66), MEASURED),
        "qsgd": LinkCost(CodecSpeed(prepare=0.56, encode=1.38, merge=0.165, decode=0.73), MEASURED),
        "natural": LinkCost(CodecSpeed(encode=0.9, payload=0.35), "assumed: between sign and rangefloat"),
        "sign": LinkCost(CodecSpeed(encode=0.92, payload=0.31), MEASURED),
        "rangefloat": LinkCost(CodecSpeed(encode=1.50, payload=0.46), MEASURED),
        "topk": LinkCost(CodecSpeed(encode=2.06, decode=0.5, payload=0.255), SPLIT, hands_on=0.0),
        "dgc": LinkCost(CodecSpeed(encode=2.06, decode=0.5, payload=0.255), SPLIT, hands_on=0.0),
        "sparseloco": LinkCost(
            CodecSpeed(encode=2.1, decode=0.5, payload=0.26), "assumed: as topk", hands_on=0.0
        ),
        "bins": LinkCost(CodecSpeed(encode=20.0, payload=5.0), "assumed: plain torch, many passes"),
        "fft": LinkCost(CodecSpeed(encode=8.5, decode=6.5, payload=0.5), SPLIT, hands_on=0.0),
        "fourier": LinkCost(CodecSpeed(encode=5.0, decode=5.0), "assumed: most of fft"),
        "dct": LinkCost(CodecSpeed(encode=5.0, decode=5.0), "assumed: as fourier"),
        "clip": LinkCost(CodecSpeed(prepare=1.5), MOVED),
        "rotate": LinkCost(CodecSpeed(prepare=1.2, decode=1.25), ROTATED),
        "rotated": LinkCost(CodecSpeed(prepare=1.7, encode=1.2, merge=0.20, decode=2.0), ROTATED),
    }
)


def _moving(hands_on: float = 1.0, **stages: float) -> LinkCost:
    """Bytes an element by stage, as the page counts them; payloads and merges: a fourth of 4 of them."""
    copies = CodecSpeed(**{name: nbytes / COPY_BYTES for name, nbytes in stages.items()})
    return LinkCost(copies, COMPUTED, hands_on=hands_on)


TRITON_COSTS: Mapping[str, LinkCost] = MappingProxyType(
    {
        "terngrad": _moving(prepare=4.04, encode=4.48, merge=1.10, decode=8.16),
        "ternary": _moving(prepare=4.04, encode=4.48, merge=1.10, decode=8.16),
        "qsgd": _moving(prepare=4.30, encode=4.66, merge=4.20, decode=8.16),
        "sign": _moving(encode=4.19, payload=5.26),
        "natural": _moving(encode=5.15, payload=3.01),
        "rangefloat": _moving(encode=9.29, payload=15.13),
        "topk": _moving(0.0, encode=4.98, decode=4.16, payload=0.08),
        "dgc": _moving(0.0, encode=4.98, decode=4.16, payload=0.08),
    }
)
_SHARDED_DENSE = CodecSpeed(
    encode=1.0, merge=0.5, decode=1.0
)  # dense tensors beside a codec are packed and added


@lru_cache(maxsize=4096)
def codec_speed(codec: str, device: Device, remembers: bool = False, sharded: bool = False) -> CodecSpeed:
    """The speed of a codec text on a device: its links one behind the other.

    >>> from thinwire.perf.network import device_named
    >>> codec_speed("dense", device_named("v100")).encode
    0.0
    """
    total, share = CodecSpeed(), 1.0
    for part in codec.split(">>"):
        cost = _cost(part.strip(), device)
        total = total.plus(cost.on(device).times(share))
        share *= cost.hands_on
    if codec == "dense" and sharded:
        total = total.plus(_SHARDED_DENSE.times(device.copy_s))
    return total.plus(RESIDUAL.times(device.copy_s)) if remembers else total


def source_of(codec: str, device: Device) -> str:
    """Where the speeds of a codec on a device come from, in a few words."""
    return "; ".join(dict.fromkeys(_cost(part.strip(), device).source for part in codec.split(">>")))


def _cost(part: str, device: Device) -> LinkCost:
    name = part.partition(":")[0].strip()
    if device.triton and name in TRITON_COSTS:
        return TRITON_COSTS[name]
    if name == "gradiveq":
        return _gradiveq(_number(part, "ratio", 8.0), _number(part, "slice", 256.0))
    if name == "powersgd":
        return _powersgd(_number(part, "rank", 4.0))
    return LINK_COSTS[name]


def _gradiveq(ratio: float, length: float) -> LinkCost:
    """Products with a basis of d = slice / ratio columns: 2 d flops an element there, 2 d back."""
    flops = 2 * length / ratio
    passes = CodecSpeed(encode=0.5 + 0.5 / ratio, decode=0.5 + 0.5 / ratio)
    return LinkCost(passes, "assumed: 4 d flops an element, and bytes moved", flops, flops, 1 / ratio)


def _powersgd(rank: float) -> LinkCost:
    """M Q, M^T P and P Q^T: 2 r flops an element each; the first two stand before anything is encoded."""
    passes = CodecSpeed(prepare=1.0, finish=0.5)
    return LinkCost(passes, "assumed: 6 r flops an element, and bytes moved", 4 * rank, 2 * rank, 0.0)


def _number(part: str, option: str, default: float) -> float:
    """An option of a codec text, given by name or as its bare value."""
    rest = part.partition(":")[2]
    if match := re.search(rf"\b{option}\s*=\s*([\d.]+)", rest):
        return float(match[1])
    bare = re.match(r"\s*([\d.]+)\s*(?:,|$)", rest)
    return float(bare[1]) if bare and option != "slice" else default


@dataclass(frozen=True)
class Speeds:
    """Codec speeds on a device; what was measured (by a probe) takes the place of what is derived."""

    device: Device
    measured: Mapping[str, CodecSpeed] = field(default_factory=dict)

    def of(self, codec: str, remembers: bool = False, sharded: bool = False, key: str = "") -> CodecSpeed:
        """`key` is what a probe calls the codec in this phase and on this route, where it has several."""
        for name in (key, codec):
            if name in self.measured:
                return self.measured[name]
        return codec_speed(codec, self.device, remembers, sharded)

    def with_measured(self, measured: Mapping[str, CodecSpeed]) -> Speeds:
        return replace(self, measured={**self.measured, **measured})


VERSION = 1  # of the JSON; another one is measured anew
MAX_AGE_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Calibration:
    """The link of a group, and codec speeds while all its workers run. The same numbers on all ranks.

    `contends` is that of `perf.device.Device`: of a second of codec work beside the backward pass, the
    seconds by which that pass is held up; the link's timings say the same of travel. `speeds` go by the keys
    of `perf.wire.speed_key`.
    """

    link: LinkModel
    world: int
    machine: str
    made_s: float  # unix time
    speeds: Mapping[str, CodecSpeed] = field(default_factory=dict)
    contends: float = 1.0

    def age_s(self, now_s: float | None = None) -> float:
        return (time.time() if now_s is None else now_s) - self.made_s

    def expired(self, max_age_s: float = MAX_AGE_S, now_s: float | None = None) -> bool:
        """Too old, or from the future: somebody has set the clock, and nothing is known of its age."""
        return not 0 <= self.age_s(now_s) <= max_age_s

    def with_speeds(self, speeds: Mapping[str, CodecSpeed], contends: float) -> Calibration:
        return replace(self, speeds={**self.speeds, **speeds}, contends=contends)

    def with_link(self, other: Calibration) -> Calibration:
        """These codecs on the link of another calibration."""
        return replace(self, link=other.link, made_s=other.made_s)

    def scaled(self, wire: float = 1.0, codec: float = 1.0) -> Calibration:
        """A link and codecs that take so many times as long."""
        speeds = {key: speed.times(codec) for key, speed in self.speeds.items()}
        return replace(self, link=self.link.scaled(wire), speeds=speeds)

    @property
    def device(self) -> Device:
        """A device for forecasts: codecs that were not probed have no speed on it."""
        return Device("measured", 0.0, float("inf"), 1.0, self.contends, "a probe")

    def speeds_of(self, keys: frozenset[str]) -> Speeds:
        """The measured speeds; refuses codecs that were not measured."""
        missing = sorted(keys - self.speeds.keys())
        if missing:
            raise LabError(
                f"{', '.join(missing)} was not measured: probe_codecs(...) takes the codecs to measure; this "
                f"calibration has {', '.join(sorted(self.speeds)) or 'none'}"
            )
        return Speeds(self.device, dict(self.speeds))

    def to_json(self) -> dict[str, Any]:
        return {
            "version": VERSION,
            "world": self.world,
            "machine": self.machine,
            "made_s": self.made_s,
            "link": {**asdict(self.link), "timings": [timing.to_json() for timing in self.link.timings]},
            "speeds": {key: asdict(speed) for key, speed in self.speeds.items()},
            "contends": self.contends,
        }

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Calibration:
        if made.get("version") != VERSION:
            raise LabError(
                f"a calibration of version {made.get('version')}, and this is version {VERSION}: measure anew"
            )
        link = dict(made["link"])
        timings = link.pop("timings" if "timings" in link else "paces")  # the key before 0.3
        return cls(
            LinkModel(**link, timings=tuple(map(Timing.from_json, timings))),
            int(made["world"]),
            str(made["machine"]),
            float(made["made_s"]),
            {str(key): _speed(speed) for key, speed in made["speeds"].items()},
            float(made["contends"]),
        )

    def __str__(self) -> str:
        link = self.link
        lines = [f"{self.world} workers: {1e6 * link.latency_s:,.0f} us, {link.bytes_per_s / 1e6:,.1f} MB/s"]
        lines += [
            f"{timing.kind}: {1e6 * timing.latency_s:,.0f} us ({1e6 * timing.busy.latency_s:,.0f} while "
            "workers compute), "
            f"then {timing.bytes_per_s / 1e6:,.1f} MB/s ({timing.busy.bytes_per_s / 1e6:,.1f})"
            for timing in self.link.timings
        ]
        lines += [
            f"{key}: {1e9 * speed.an_element:.3f} ns an element, {1e6 * speed.tensor:.0f} us a tensor, "
            f"{1e6 * speed.part:.0f} us a call"
            for key, speed in self.speeds.items()
        ]
        return "\n".join([*lines, f"of a second of codec work the backward pass loses {self.contends:.2f} s"])


def _speed(made: Mapping[str, float]) -> CodecSpeed:
    """Reads a codec's speed; its last field was called "parcel" before 0.3."""
    return CodecSpeed(**{"part" if name == "parcel" else name: value for name, value in made.items()})
