"""Records of runs: a JSON line for every finished run, so that a study goes on where it stopped."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire.plans.lane import WIRE_VERSION, bytes_since
from thinwire_lab.records import RecordFile, origin
from thinwire_lab.report.record import Row, RunOutcome, outcome_from_dict
from thinwire_lab.run.recipe import Recipe, recipe_from_dict

RECORDS = "records.jsonl"  # in the run folder, unless another file is named
Finished = tuple[RunOutcome, list[Row]]


@dataclass(frozen=True)
class RunSettings:
    """All that decides the result of a run: runs with equal settings are the same run."""

    recipe: Recipe
    network: str  # its kind
    baseline: str = ""  # the codec whose losses a guard is told
    wire: int = WIRE_VERSION


@dataclass(frozen=True)
class RunRecords:
    """A file that lines are added to and never taken from; of two lines of the same run the later one counts.

    A line is {"settings": {"recipe", "network", "baseline", "wire"}, "commit", "made", "result", "rows"}. Of
    the rows, losses are stored as (step, loss), everything else as it came.
    """

    path: Path

    def find(self, settings: RunSettings) -> Finished | None:
        """The result of a run that was finished before, and its rows."""
        found = None
        for values in self._lines():
            if _settings(values["settings"]) == settings:
                found = values
        return None if found is None else (outcome_from_dict(found["result"]), _long(found["rows"]))

    def checked(self) -> RunRecords:
        """Itself; raises LabError unless the file has at least one run."""
        if not self.path.is_file() or not self.path.read_bytes().strip():
            raise LabError(
                f"{self.path} has no runs: make some with thinwire compare TASK --records {self.path}"
            )
        return self

    def runs(self) -> list[tuple[Recipe, RunOutcome]]:
        """Every run with the bytes of this version, and its outcome, in order; the later of two counts."""
        found: dict[RunSettings, RunOutcome] = {}
        for values in self._lines():
            settings = _settings(values["settings"])
            if settings is not None and settings.wire == WIRE_VERSION:
                found[settings] = outcome_from_dict(values["result"])
        return [(settings.recipe, outcome) for settings, outcome in found.items()]

    def add(self, settings: RunSettings, outcome: RunOutcome, rows: list[Row]) -> None:
        """Records a finished run as one line."""
        line = {
            "settings": {
                "recipe": settings.recipe.to_dict(),
                "network": settings.network,
                "baseline": settings.baseline,
                "wire": settings.wire,
            },
            **origin(),
            "result": outcome.to_dict(),
            "rows": _short(rows),
        }
        RecordFile(self.path).append(line)

    def check(self) -> None:
        """Refuses a file that cannot be read or written, before anything runs."""
        if not self.path.absolute().parent.is_dir():
            raise LabError(
                f"folder {self.path.absolute().parent} for --records does not exist: make it first"
            )
        for _ in self._lines():
            pass

    def _lines(self) -> Iterator[dict[str, Any]]:
        return RecordFile(self.path).read(_checked)


def _checked(values: dict[str, Any]) -> dict[str, Any]:
    _settings(values["settings"]), outcome_from_dict(values["result"]), values["rows"]["steps"]
    return values


def _settings(values: dict[str, Any]) -> RunSettings | None:
    """Settings as they were written; None if a later thinwire wrote them, with options unknown here.

    A version since which the codec's bytes have not changed counts as that of now.
    """
    try:
        recipe, wire = recipe_from_dict(values["recipe"]), values["wire"]
        unchanged = bytes_since(recipe.codec) <= wire <= WIRE_VERSION
        return RunSettings(recipe, values["network"], values["baseline"], WIRE_VERSION if unchanged else wire)
    except LabError:
        return None


def _short(rows: list[Row]) -> dict[str, Any]:
    told = [row for row in rows if row["row"] not in ("step", "result")]
    plain = [row for row in rows if row["row"] == "step"]
    return {
        "told": told,
        "steps": [[row["step"], _digits(row["loss"]), *_extras(row)] for row in plain],
        "seconds": plain[-1]["seconds"] if plain else 0.0,
        "epochs": plain[-1]["epoch"] if plain else 0.0,
    }


def _extras(row: Row) -> list[dict[str, float]]:
    extras: dict[str, float] = {name: row[name] for name in ("compression_level", "theta") if name in row}
    return [extras] if extras else []


def _long(short: dict[str, Any]) -> list[Row]:
    """The rows again; where a step lies in time and in epochs is taken to be proportional to its number."""
    last = short["steps"][-1][0] if short["steps"] else 1
    rows: list[Row] = [
        {
            "row": "step",
            "step": step,
            "epoch": short["epochs"] * step / last,
            "seconds": short["seconds"] * step / last,
            "loss": loss,
            **(extras[0] if extras else {}),
        }
        for step, loss, *extras in short["steps"]
    ]
    return sorted(rows + short["told"], key=lambda row: row["step"])


def _digits(loss: float) -> float:
    """Six digits: enough for a curve."""
    return float(f"{loss:.6g}") if math.isfinite(loss) else loss
