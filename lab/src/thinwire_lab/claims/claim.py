"""A claim of a paper: the study that tests it, the evidence in the records, and the judgement."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire.plans.lane import WIRE_VERSION, bytes_since
from thinwire_lab.records import RecordFile, origin
from thinwire_lab.spread import Spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Settings = Mapping[str, Any]
Result = Mapping[str, Any]
CLAIMS_FILE = "claims.jsonl"
Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


def rounded(value: float) -> float:
    """Five digits: enough for every judge, and short in a file.

    >>> rounded(0.123456789)
    0.12346
    """
    return float(f"{value:.5g}")


def points(difference: float) -> str:
    """
    >>> points(-0.0123)
    '-1.23'
    """
    return f"{100 * difference:+.2f}"


def points_spread(differences: Spread) -> str:
    """The mean and the standard deviation over seeds.

    >>> points_spread(Spread.of([0.01, 0.02]))
    '+1.50 ± 0.71'
    """
    return f"{points(differences.mean)} ± {100 * differences.deviation:.2f}"


@dataclass(frozen=True)
class ClaimRun:
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
        """The run as it is shown to a user who waits."""
        words = [str(self.settings[name]) for name in ("task", "model", "codec") if name in self.settings]
        workers = [f"{self.settings['workers']} workers"] if "workers" in self.settings else []
        return ", ".join([*(words or [self.kind]), *workers, f"seed {self.seed}"])


@dataclass(frozen=True)
class Measured:
    """A run that was made, and what it gave."""

    settings: Settings
    seed: int
    result: Result


@dataclass(frozen=True)
class Evidence:
    """The runs of a study, of seeds for which all runs have been made."""

    measured: Sequence[Measured]

    @property
    def seeds(self) -> tuple[int, ...]:
        return tuple(sorted({one.seed for one in self.measured}))

    def where(self, **settings: Any) -> Evidence:
        """The runs with these settings."""
        return Evidence(
            [
                one
                for one in self.measured
                if all(one.settings.get(name) == value for name, value in settings.items())
            ]
        )

    def values(self, value: Callable[[Measured], float]) -> Spread:
        """One number of every run, by seed."""
        return Spread.of(value(one) for one in sorted(self.measured, key=lambda one: one.seed))

    def result(self, name: str) -> Spread:
        """One figure of the results, by seed."""
        return self.values(lambda one: float(one.result[name]))

    def minus(self, other: Evidence, name: str) -> Spread:
        """The difference of a figure to that of other runs, seed by seed."""
        own, theirs = self.result(name), other.result(name)
        return Spread.of(a - b for a, b in zip(own.values, theirs.values, strict=True))


class Verdict(StrEnum):
    """The first word of every verdict."""

    REPRODUCED = "reproduced"
    PARTLY = "partly"
    REFUTED = "refuted"
    UNTESTABLE = "untestable"
    OPEN = "open"


@dataclass(frozen=True)
class Judgement:
    """What a judge concludes from the evidence; `because` explains the word."""

    measured: str
    word: Verdict
    because: str = ""

    @property
    def verdict(self) -> str:
        """
        >>> Judgement("1.2x", Verdict.PARTLY, "faster, but not 2x").verdict
        'partly: faster, but not 2x'
        """
        return f"{self.word}: {self.because}" if self.because else str(self.word)


Judge = Callable[[Evidence], Judgement]


def graded(all_hold: bool, some_hold: bool) -> Verdict:
    """Reproduced if everything a claim says holds, partly if some of it does."""
    return Verdict.REPRODUCED if all_hold else Verdict.PARTLY if some_hold else Verdict.REFUTED


class ClaimStudy(ABC):
    """A study lists its runs, makes them one by one, and finds their records."""

    needs_data = False

    @property
    def command(self) -> str:
        """The command that makes the runs, if it is not that of the claims."""
        return ""

    @property
    def untestable(self) -> str:
        """Why the claim cannot be tested here; empty if it can."""
        return ""

    @abstractmethod
    def runs(self, seed: int) -> Sequence[ClaimRun]:
        """Everything that is measured with one seed."""

    @abstractmethod
    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        """Makes one run; what it returns is plain JSON."""

    def evidence(self, folder: Path) -> Evidence:
        """The recorded runs of seeds for which all runs have been made."""
        records = ClaimRecords(folder / CLAIMS_FILE)
        found: list[Measured] = []
        for seed in records.seeds():
            own = [records.find(run) for run in self.runs(seed)]
            if own and None not in own:
                found += [one for one in own if one is not None]
        return Evidence(found)


@dataclass(frozen=True)
class Recorded(ClaimStudy):
    """Runs that another command makes and records; here they are only read."""

    file: str
    made_by: str
    read: Callable[[Path], Sequence[Measured]]

    @property
    def command(self) -> str:
        return self.made_by

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        raise LabError(f"these runs are made by another command, which writes {self.file}: {self.command}")

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        raise LabError(f"made by another command: {self.command}")

    def evidence(self, folder: Path) -> Evidence:
        path = folder / self.file
        return Evidence(self.read(path) if path.exists() else [])


@dataclass(frozen=True)
class Untestable(ClaimStudy):
    """A claim that cannot be tested on this hardware."""

    why: str

    @property
    def untestable(self) -> str:
        return self.why

    def evidence(self, folder: Path) -> Evidence:
        return Evidence([])

    def runs(self, seed: int) -> Sequence[ClaimRun]:
        raise LabError(f"this cannot be tested here: {self.untestable}")

    def perform(self, run: ClaimRun, data: Path | None, tell: Tell) -> Result:
        raise LabError(f"this cannot be tested here: {self.untestable}")


Plot = Callable[[Evidence, "Figure"], None]  # fills an empty figure


@dataclass(frozen=True)
class Claim:
    """What a paper says, and how it is checked.

    A verdict needs two seeds. Where nothing is drawn at random (a model, a count of bytes) `why_no_seeds`
    says so, and one run will do.
    """

    id: str
    paper: str
    place: str  # where in the paper
    text: str  # the claim in one sentence
    scaled_down: str  # what is smaller or other here than in the paper
    study: ClaimStudy
    judge: Judge
    why_no_seeds: str = ""
    plot: Plot | None = None

    @property
    def command(self) -> str:
        """What a user types to check it."""
        if self.study.command:
            return self.study.command
        return f"thinwire claims run {self.id}" + (" --data DIR" if self.study.needs_data else "")


@dataclass(frozen=True)
class ClaimRecords:
    """A line is {"kind", "settings", "seed", "wire", "commit", "made", "result"}.

    Of two lines of the same run the later one counts; lines with other bytes on the wire do not.
    """

    path: Path

    def find(self, run: ClaimRun) -> Measured | None:
        """What was measured by equal settings with the same seed."""
        return self._measured.get(run.key)

    def seeds(self) -> tuple[int, ...]:
        """All seeds that occur."""
        return tuple(sorted({one.seed for one in self._measured.values()}))

    def add(self, run: ClaimRun, result: Result) -> None:
        """Records a run; it is found by objects that are made later."""
        line = {
            "kind": run.kind,
            "settings": dict(run.settings),
            "seed": run.seed,
            "wire": WIRE_VERSION,
            **origin(),
            "result": dict(result),
        }
        RecordFile(self.path).append(line)

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        values = RecordFile(self.path).read(_parsed)
        return {
            key: measured
            for wire, key, measured in values
            if bytes_since(json.dumps(dict(measured.settings))) <= wire <= WIRE_VERSION
        }


def _parsed(values: dict[str, Any]) -> tuple[int, str, Measured]:
    """The version of the wire, the run's key and what was measured."""
    run = ClaimRun(values["kind"], values["settings"], values["seed"])
    return values["wire"], run.key, Measured(run.settings, run.seed, values["result"])
