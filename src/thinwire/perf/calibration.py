"""A calibration: what a probe found out about a group and the machines that it runs on."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from thinwire.errors import LabError
from thinwire.perf.device import Device
from thinwire.perf.link import Link
from thinwire.perf.pace import Pace
from thinwire.perf.speed import CodecSpeed, Speeds

VERSION = 1  # of the JSON; another one is measured anew
MAX_AGE_S = 7 * 24 * 3600.0


@dataclass(frozen=True)
class Calibration:
    """The link of a group, and codec speeds while all its workers run. The same numbers on all ranks.

    `contends` is that of `perf.device.Device`: of a second of codec work beside the backward pass, the
    seconds by which that pass is held up; the link's paces say the same of travel. `speeds` go by the keys
    of `perf.wire.speed_key`.
    """

    link: Link
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
            "link": {**asdict(self.link), "paces": [pace.to_json() for pace in self.link.paces]},
            "speeds": {key: asdict(speed) for key, speed in self.speeds.items()},
            "contends": self.contends,
        }

    @classmethod
    def from_json(cls, made: Mapping[str, Any]) -> Calibration:
        if made.get("version") != VERSION:
            raise LabError(
                f"a calibration of version {made.get('version')}, and this is version {VERSION}: measure anew"
            )
        link = {**made["link"], "paces": tuple(map(Pace.from_json, made["link"]["paces"]))}
        return cls(
            Link(**link),
            int(made["world"]),
            str(made["machine"]),
            float(made["made_s"]),
            {str(key): CodecSpeed(**speed) for key, speed in made["speeds"].items()},
            float(made["contends"]),
        )

    def __str__(self) -> str:
        link = self.link
        lines = [f"{self.world} workers: {1e6 * link.latency_s:,.0f} us, {link.bytes_per_s / 1e6:,.1f} MB/s"]
        lines += [
            f"{pace.kind}: {1e6 * pace.latency_s:,.0f} us ({1e6 * pace.busy.latency_s:,.0f} while workers "
            f"compute), then {pace.bytes_per_s / 1e6:,.1f} MB/s ({pace.busy.bytes_per_s / 1e6:,.1f})"
            for pace in self.link.paces
        ]
        lines += [
            f"{key}: {1e9 * speed.an_element:.3f} ns an element, {1e6 * speed.tensor:.0f} us a tensor, "
            f"{1e6 * speed.parcel:.0f} us a call"
            for key, speed in self.speeds.items()
        ]
        return "\n".join([*lines, f"of a second of codec work the backward pass loses {self.contends:.2f} s"])
