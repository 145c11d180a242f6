"""A record: outcomes and rows of finished runs in a folder, written and read back.

The folder has rows.jsonl, summary.json and report.html.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields
from datetime import datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from thinwire.errors import LabError
from thinwire.perf.calibration import machine_kind
from thinwire_lab.records import now, read_json

FORMAT = "thinwire record"
VERSION = 1
ROWS, SUMMARY, REPORT, PICTURE = "rows.jsonl", "summary.json", "report.html", "report.png"
NEEDED_BYTES = 20_000_000  # rows and report of a long comparison
Row = dict[str, Any]


@dataclass(frozen=True)
class Origin:
    """How a record came about: enough to make it again and to know what to compare it with."""

    title: str
    command: str
    made: str
    machine: str
    versions: dict[str, str]
    network: str
    recipe: dict[str, Any]


@dataclass(frozen=True)
class Record:
    """All runs of one command: where they come from, their outcomes, and the rows of each by label."""

    origin: Origin
    outcomes: tuple[RunOutcome, ...]
    rows: dict[str, list[Row]]


def describe(title: str, command: str, network: str, recipe: dict[str, Any]) -> Origin:
    """The origin of a record made here and now."""
    return Origin(title, command, now(), machine_kind(), _versions(), network, recipe)


def make_folder(root: Path, name: str) -> Path:
    """A new folder runs/NAME-TIME, writable and with room for the report: checked before training."""
    stamp = datetime.now().strftime("%Y%m%d-%H%M%S")
    for suffix in ("", *(f"-{k}" for k in range(2, 100))):
        folder = root / f"{name}-{stamp}{suffix}"
        try:
            folder.mkdir(parents=True, exist_ok=False)
        except FileExistsError:
            continue
        except OSError as error:
            raise LabError(
                f"folder {folder} cannot be made ({error.strerror}): name another with --out DIR"
            ) from error
        _check_room(folder)
        return folder
    raise LabError(f"{root} has a hundred runs of this second already: name another folder with --out DIR")


def open_folder(folder: Path) -> Path:
    """A folder that may or may not be there yet."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"folder {folder} cannot be made ({error.strerror}): name another") from error
    return folder


def write_record(folder: Path, record: Record) -> None:
    """Write rows.jsonl (one row per line, each with the label of its run) and summary.json."""
    labelled = (json.dumps({"run": label, **row}) for label, rows in record.rows.items() for row in rows)
    origin, outcomes = asdict(record.origin), [outcome.to_dict() for outcome in record.outcomes]
    summary = {"format": FORMAT, "version": VERSION, **origin, "runs": outcomes}
    write_text(folder / ROWS, "".join(f"{line}\n" for line in labelled))
    write_text(folder / SUMMARY, json.dumps(summary, indent=1) + "\n")


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        os.replace(part, path)
    except OSError as error:
        raise LabError(
            f"{path} cannot be written ({error.strerror}): free some space or name another folder"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def read_record(folder: Path) -> Record:
    """The record that `write_record` wrote."""
    if not folder.is_dir():
        raise LabError(f"run folder {folder} does not exist: name a folder that train, compare or demo wrote")
    summary = _summary(folder / SUMMARY)
    try:
        origin = Origin(**{field.name: summary[field.name] for field in fields(Origin)})
        outcomes = tuple(outcome_from_dict(values) for values in summary["runs"])
    except (KeyError, TypeError) as error:
        raise LabError(f"{folder / SUMMARY} is damaged (no entry {error}): run the command again") from error
    rows: dict[str, list[Row]] = {outcome.label: [] for outcome in outcomes}
    for row in _rows(folder / ROWS):
        rows.setdefault(row["run"], []).append(row)
    return Record(origin, outcomes, rows)


def _summary(path: Path) -> dict[str, Any]:
    try:
        summary = read_json(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise LabError(
            f"{path} cannot be read ({error}): name a folder that train, compare or demo wrote"
        ) from error
    if not isinstance(summary, dict) or summary.get("format") != FORMAT:
        raise LabError(f"{path} was not written by thinwire: name a folder that train, compare or demo wrote")
    if summary.get("version") != VERSION:
        raise LabError(
            f"{path} has version {summary.get('version')}, this thinwire reads {VERSION}: run it again"
        )
    return summary


def _rows(path: Path) -> Iterator[Row]:
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, ValueError) as error:
        raise LabError(f"{path} cannot be read ({error}): run the command again") from error
    for number, line in enumerate(lines, 1):
        try:
            row = read_json(line)
            row["run"], row["row"], row["step"]
        except (ValueError, TypeError, KeyError) as error:
            raise LabError(
                f"{path} is damaged in line {number}: delete that line or run the command again"
            ) from error
        yield row


def _check_room(folder: Path) -> None:
    free = shutil.disk_usage(folder).free
    if free < NEEDED_BYTES:
        raise LabError(
            f"{folder} has {free // 1_000_000} MB left, a report needs {NEEDED_BYTES // 1_000_000} MB: "
            "free some space or name another folder with --out DIR"
        )


def _versions() -> dict[str, str]:
    versions = {"system": f"{platform.system()} {platform.release()}", "python": platform.python_version()}
    for name in ("thinwire", "torch", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


@dataclass(frozen=True)
class RunOutcome:
    """One run. `asked` is the codec the user named, `codec` what was run in its place on this network."""

    label: str
    asked: str
    codec: str
    seed: int
    metric: str
    score: float
    accuracy: float
    test_loss: float
    steps: int
    seconds: float
    step_ms: float
    bytes_per_step: float
    bytes_source: str
    dense_bytes_per_step: float  # what a ring all-reduce of fp32 gradients would send
    parameters: str  # digest of the final parameters
    report: dict[str, Any] | None  # the compressor's own report

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return asdict(self)


def outcome_from_rows(
    label: str, asked: str, codec: str, seed: int, metric: str, rows: list[Row]
) -> RunOutcome:
    """The outcome of a run from its rows: the last evaluation and the result."""
    result = next((row for row in rows if row["row"] == "result"), None)
    evaluation = next((row for row in reversed(rows) if row["row"] == "evaluation"), None)
    if result is None or evaluation is None:
        raise LabError(f"run {label!r} ended without a result: run it again, and report this if it stays so")
    return RunOutcome(
        label=label,
        asked=asked,
        codec=codec,
        seed=seed,
        metric=metric,
        **{name: evaluation[name] for name in ("score", "accuracy", "test_loss")},
        **{name: result[name] for name in ("steps", "seconds", "step_ms", "bytes_per_step", "bytes_source")},
        **{name: result[name] for name in ("dense_bytes_per_step", "parameters", "report")},
    )


def start_of(rows: list[Row]) -> int:
    """The step at which a run was started: 0, unless it was resumed; 0 too if the rows have no losses."""
    told = next((row for row in rows if row["row"] == "step"), {})
    return int(told["step"] - len(told["losses"])) if "losses" in told else 0


def outcome_from_dict(values: dict[str, Any]) -> RunOutcome:
    """The outcome that `to_dict` wrote; a missing entry raises KeyError."""
    return RunOutcome(**{field.name: values[field.name] for field in fields(RunOutcome)})
