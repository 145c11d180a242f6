"""How a process ended, and the error that follows if it ended badly."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass

from thinwire.errors import LabError


@dataclass(frozen=True)
class Ending:
    """How one process ended; minus a signal's number if a signal ended it."""

    rank: int
    returncode: int

    @property
    def killed(self) -> bool:
        """Whether somebody else ended it: a process that loses its peer may abort, but is not killed."""
        return self.returncode < 0 and self.returncode != -signal.SIGABRT

    def __str__(self) -> str:
        if self.returncode < 0:
            return f"was killed by {signal.Signals(-self.returncode).name}"
        return f"ended with exit code {self.returncode}"


class ProcessFailed(LabError):
    """One process failed, so the others were stopped."""

    def __init__(self, noun: str, failed: Ending, endings: Sequence[Ending], output: Sequence[str]) -> None:
        self.noun, self.failed, self.endings = noun, failed, tuple(endings)
        others = f"; the other {noun}s were stopped" if len(endings) > 1 else ""
        self.sentence = f"{noun} {failed.rank} {failed}{others}"
        said = "\n".join(f"  [{noun} {failed.rank}] {line}" for line in output) or "  (it wrote nothing)"
        super().__init__(f"{self.sentence}. Its last output:\n{said}")

    def showing(self, output: Sequence[str]) -> ProcessFailed:
        """The same failure, with these lines as the last output."""
        return ProcessFailed(self.noun, self.failed, self.endings, output)
