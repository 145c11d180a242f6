"""A run of a study: what is measured, by which settings and with which seed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

Settings = Mapping[str, Any]
Result = Mapping[str, Any]


@dataclass(frozen=True)
class Run:
    """One measurement that has not been made yet; settings are plain values, as JSON has them.

    Claims that ask for equal runs share them.
    """

    kind: str  # of measurement: "training", "gradients", ...
    settings: Settings
    seed: int

    @property
    def key(self) -> str:
        """The same text for equal runs."""
        return json.dumps([self.kind, self.settings, self.seed], sort_keys=True)

    @property
    def name(self) -> str:
        """For a person who waits."""
        words = [str(self.settings[name]) for name in ("task", "model", "codec") if name in self.settings]
        workers = [f"{self.settings['workers']} workers"] if "workers" in self.settings else []
        return ", ".join([*(words or [self.kind]), *workers, f"seed {self.seed}"])


@dataclass(frozen=True)
class Measured:
    """A run that was made, and what it gave."""

    settings: Settings
    seed: int
    result: Result
