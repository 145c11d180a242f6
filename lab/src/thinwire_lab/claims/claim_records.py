"""The records of the claims: a JSON line for every run that was made."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire.plans.wire_version import WIRE_VERSION, bytes_since
from thinwire_lab.claims.run import Measured, Result, Run
from thinwire_lab.run.lines_file import LinesFile
from thinwire_lab.run.records import commit


@dataclass(frozen=True)
class ClaimRecords:
    """A line is {"kind", "settings", "seed", "wire", "commit", "made", "result"}.

    Of two lines of the same run the later one counts; lines with other bytes on the wire do not.
    """

    path: Path

    def find(self, run: Run) -> Measured | None:
        """What was measured by equal settings with the same seed."""
        return self._measured.get(run.key)

    def seeds(self) -> tuple[int, ...]:
        """All seeds that occur."""
        return tuple(sorted({one.seed for one in self._measured.values()}))

    def add(self, run: Run, result: Result) -> None:
        """Writes a run down; this object does not see it, the next one does."""
        line = {
            "kind": run.kind,
            "settings": dict(run.settings),
            "seed": run.seed,
            "wire": WIRE_VERSION,
            "commit": commit(),
            "made": datetime.now().astimezone().isoformat(timespec="seconds"),
            "result": dict(result),
        }
        LinesFile(self.path).append(json.dumps(line))

    @cached_property
    def _measured(self) -> dict[str, Measured]:
        lines = enumerate(LinesFile(self.path).lines(), 1)
        values = [self._read(number, line) for number, line in lines]
        return {
            key: measured
            for wire, key, measured in values
            if bytes_since(json.dumps(dict(measured.settings))) <= wire <= WIRE_VERSION
        }

    def _read(self, number: int, line: str) -> tuple[int, str, Measured]:
        try:
            values: dict[str, Any] = json.loads(line)
            run = Run(values["kind"], values["settings"], values["seed"])
            return values["wire"], run.key, Measured(run.settings, run.seed, values["result"])
        except (ValueError, TypeError, KeyError) as error:
            raise LabError(
                f"{self.path} is damaged in line {number}: delete that line, or name another folder"
            ) from error
