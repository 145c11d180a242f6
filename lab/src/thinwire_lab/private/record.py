"""Records: a finished run is one JSON line (settings, commit, load, result); recorded is not run again."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinwire.errors import PrivateError

FOLDER = Path("docs/records")
Row = dict[str, Any]


@dataclass(frozen=True)
class Records:
    """The lines of one bench in one file.

    >>> Records("ladder").path.as_posix()
    'docs/records/private-ladder.jsonl'
    """

    bench: str
    folder: Path = FOLDER

    @property
    def path(self) -> Path:
        """The file."""
        return self.folder / f"private-{self.bench}.jsonl"

    def read(self) -> list[Row]:
        """All lines, the oldest first."""
        if not self.path.exists():
            return []
        try:
            return [json.loads(line) for line in self.path.read_text().splitlines() if line]
        except json.JSONDecodeError as error:
            raise PrivateError(
                f"{self.path} line {error.lineno} is no JSON: remove that line, its run is made again"
            ) from None

    def find(self, settings: Mapping[str, Any]) -> Row | None:
        """The newest result of a run with these settings."""
        same = [line["result"] for line in self.read() if line["settings"] == dict(settings)]
        return same[-1] if same else None

    def once(self, settings: Mapping[str, Any], run: Callable[[], Row], again: bool = False) -> Row:
        """The recorded result, or else that of `run()`, which is recorded."""
        if not again and (found := self.find(settings)) is not None:
            return found
        load = round(os.getloadavg()[0], 1)  # of the machine before it: seconds under load are no claim
        result = run()
        line = {"settings": dict(settings), "commit": commit(), "load": load, "result": result}
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        return result


def commit() -> str:
    """The commit of this source tree, with a + if it was changed; "unknown" outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty=+", "--exclude=*"]
    done = subprocess.run(command, capture_output=True, text=True)
    return done.stdout.strip() or "unknown"
