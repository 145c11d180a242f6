"""Records: files of JSON lines that are added to and never taken from, and where a line comes from."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

from thinwire.errors import LabError
from thinwire.texts import with_present_names

T = TypeVar("T")
FORMER_KEYS = {"control": "schedule", "strength": "compression_level"}  # of records made before 0.3


def read_json(text: str) -> Any:
    """What a record's text says, under the present names of options and entries.

    >>> read_json('{"codec": "topk:0.01 @ memory=none", "strength": 0.5}')
    {'codec': 'topk:0.01 @ feedback=none', 'compression_level': 0.5}
    """
    for former, key in FORMER_KEYS.items():
        text = text.replace(f'"{former}":', f'"{key}":')
    return json.loads(with_present_names(text))


@dataclass(frozen=True)
class RecordFile:
    """A JSON object a line; a line that was cut off when its writer died does not count.

    Several programs may add lines at the same time.
    """

    path: Path

    def read(self, parse: Callable[[Any], T], skip_damaged: bool = False) -> Iterator[T]:
        """What `parse` makes of each line; a line is damaged if that raises ValueError or KeyError."""
        text = self._text()
        lines = text[: len(text) - _torn(text)].splitlines()
        for number, line in enumerate(lines, 1):
            try:
                yield parse(read_json(line))
            except (ValueError, TypeError, KeyError) as error:
                if skip_damaged:
                    continue
                raise LabError(
                    f"{self.path} is damaged in line {number}: delete that line, or name another file"
                ) from error

    def append(self, record: Mapping[str, Any]) -> None:
        """Writes one line at once, behind the last whole one."""
        line = (json.dumps(record) + "\n").encode()
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            text = self.path.read_text(encoding="utf-8") if self.path.exists() else ""
            if torn := _torn(text):
                with self.path.open("r+b") as file:
                    file.truncate(len(text[:-torn].encode()))
            elif text and not text.endswith("\n"):
                line = b"\n" + line
            with self.path.open("ab") as file:
                file.write(line)
        except OSError as error:
            raise LabError(
                f"{self.path} cannot be written ({error.strerror}): name another file with --records"
            ) from error

    def _text(self) -> str:
        if not self.path.exists():
            return ""
        try:
            return self.path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise LabError(
                f"{self.path} cannot be read ({error}): name another file with --records"
            ) from error


def _torn(text: str) -> int:
    """How many characters at the end are a line that was cut off."""
    last = text[text.rfind("\n") + 1 :]
    try:
        json.loads(last or "0")
    except ValueError:
        return len(last)
    return 0


def origin() -> dict[str, str]:
    """Which source made a line, and when."""
    return {"commit": commit(), "made": now()}


def now() -> str:
    """The local time with its zone, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def commit() -> str:
    """The commit of this source tree, with a + if files differ from it; "unknown" outside a repository."""
    words = ["git", "-C", str(Path(__file__).parent), "describe"]
    options = ["--always", "--abbrev=12", "--dirty=+", "--exclude=*"]
    try:
        done = subprocess.run([*words, *options], check=True, capture_output=True, text=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
