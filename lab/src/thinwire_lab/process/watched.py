"""A watched process: whole lines of its output, and the last of them kept."""

from __future__ import annotations

import os
import selectors
import subprocess
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import IO

TAIL_LINES = 20
CHUNK_BYTES = 1 << 16


@dataclass
class Watched:
    """One process, a line it has not finished, and the last lines it wrote."""

    rank: int
    process: subprocess.Popen[bytes]
    rest: bytes = b""
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))

    @property
    def pipe(self) -> IO[bytes]:
        assert self.process.stdout is not None
        return self.process.stdout

    def read(self) -> tuple[bool, list[str]]:
        """Whether more may come, and the lines that are whole by now."""
        try:
            chunk = os.read(self.pipe.fileno(), CHUNK_BYTES)
        except BlockingIOError:
            return True, []
        # Progress bars end their lines by a carriage return.
        text = (self.rest + chunk).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        *lines, self.rest = text.split(b"\n")
        return bool(chunk), self._kept(lines)

    def read_rest(self) -> list[str]:
        """What is still in the pipe; a process left in the background cannot hold us up."""
        found = []
        with selectors.DefaultSelector() as selector:
            selector.register(self.pipe, selectors.EVENT_READ)
            more = True
            while more and selector.select(0):
                more, lines = self.read()
                found += lines
        last, self.rest = [self.rest] if self.rest else [], b""
        return found + self._kept(last)

    def _kept(self, lines: Sequence[bytes]) -> list[str]:
        texts = [line.decode(errors="replace") for line in lines]
        self.tail.extend(texts)
        return texts
