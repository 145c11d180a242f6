"""A file of lines: one is added at a time, and one that was cut off when its writer died does not count."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError


@dataclass(frozen=True)
class LinesFile:
    """Lines are added and never taken away; several programs may write to it at the same time."""

    path: Path

    def lines(self) -> Iterator[str]:
        """The whole lines."""
        if not self.path.exists():
            return iter(())
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise LabError(
                f"{self.path} cannot be read ({error}): name another file with --records"
            ) from error
        return iter(text[: text.rfind("\n") + 1].splitlines())

    def append(self, line: str) -> None:
        """Writes a line at once, behind the last whole one."""
        try:
            self._drop_torn_line()
            with self.path.open("ab") as file:
                file.write(line.encode() + b"\n")
        except OSError as error:
            raise LabError(
                f"{self.path} cannot be written ({error.strerror}): name another file with --records"
            ) from error

    def _drop_torn_line(self) -> None:
        whole = self.path.read_bytes() if self.path.exists() else b""
        if whole and not whole.endswith(b"\n"):
            with self.path.open("r+b") as file:
                file.truncate(whole.rfind(b"\n") + 1)
