"""A study: the runs that settle one claim or several, and how one of them is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.claims.claim_records import ClaimRecords
from thinwire_lab.claims.evidence import Evidence
from thinwire_lab.claims.run import Measured, Result, Run

CLAIMS_FILE = "claims.jsonl"
Tell = Callable[[str, int, int], None]  # what is being done, how much of it is done, of how much


class Study(ABC):
    """Knows its runs before any of them is made."""

    needs_data = False

    @property
    def command(self) -> str:
        """The command that makes the runs, if it is not that of the claims."""
        return ""

    @property
    def untestable(self) -> str:
        """Why nothing that could be run here would tell; empty if something would."""
        return ""

    @abstractmethod
    def runs(self, seed: int) -> Sequence[Run]:
        """Everything that is measured with one seed."""

    @abstractmethod
    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        """Makes one run; what it returns is plain JSON."""

    def evidence(self, folder: Path) -> Evidence:
        """What is recorded of the seeds whose runs have all been made."""
        records = ClaimRecords(folder / CLAIMS_FILE)
        found: list[Measured] = []
        for seed in records.seeds():
            own = [records.find(run) for run in self.runs(seed)]
            if own and None not in own:
                found += [one for one in own if one is not None]
        return Evidence(found)


@dataclass(frozen=True)
class Recorded(Study):
    """Runs that another command makes and writes down; here they are read."""

    file: str
    made_by: str
    read: Callable[[Path], Sequence[Measured]]

    @property
    def command(self) -> str:
        return self.made_by

    def runs(self, seed: int) -> Sequence[Run]:
        raise LabError(f"these runs are made by another command, which writes {self.file}: {self.command}")

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        raise LabError(f"made by another command: {self.command}")

    def evidence(self, folder: Path) -> Evidence:
        path = folder / self.file
        return Evidence(self.read(path) if path.exists() else [])


@dataclass(frozen=True)
class Untestable(Study):
    """Nothing here could be run that would tell."""

    why: str

    @property
    def untestable(self) -> str:
        return self.why

    def evidence(self, folder: Path) -> Evidence:
        return Evidence([])

    def runs(self, seed: int) -> Sequence[Run]:
        raise LabError(f"this cannot be tested here: {self.untestable}")

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        raise LabError(f"this cannot be tested here: {self.untestable}")
