"""A record: the folder of finished runs (rows.jsonl, summary.json, report.html), written and read back."""

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
from thinwire_lab.report.outcome import Outcome, Row, outcome_from_dict

FORMAT = "thinwire record"
VERSION = 1
ROWS, SUMMARY, REPORT, PICTURE = "rows.jsonl", "summary.json", "report.html", "report.png"
NEEDED_BYTES = 20_000_000  # rows and report of a long comparison


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
    outcomes: tuple[Outcome, ...]
    rows: dict[str, list[Row]]


def describe(title: str, command: str, network: str, recipe: dict[str, Any]) -> Origin:
    """The origin of a record made here and now."""
    made = datetime.now().astimezone().isoformat(timespec="seconds")
    return Origin(title, command, made, _machine(), _versions(), network, recipe)


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
        summary = json.loads(path.read_text(encoding="utf-8"))
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
            row = json.loads(line)
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


def _machine() -> str:
    return f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.release()}"


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )


def _versions() -> dict[str, str]:
    versions = {"python": platform.python_version()}
    for name in ("thinwire", "torch", "numpy"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions
