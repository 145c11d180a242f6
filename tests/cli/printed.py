"""What a command printed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Printed:
    """How a command ended and what it printed."""

    code: int
    out: str
    err: str

    def rows(self) -> list[dict[str, Any]]:
        """What --json prints: nothing but one object a line."""
        assert self.code == 0, self.err
        return [json.loads(line) for line in self.out.splitlines()]

    def words(self) -> str:
        """Without the line breaks of the terminal."""
        assert self.code == 0, self.err
        return " ".join(self.out.split())


Call = Callable[..., Printed]
