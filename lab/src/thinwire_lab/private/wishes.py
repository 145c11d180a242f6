"""Wishes: what the user of a bench asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from thinwire_lab.private.record import FOLDER, Records

Row = dict[str, Any]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Wishes:
    """Options of `thinwire private bench`; None: as the bench likes."""

    nets: tuple[str, ...] = ("digits", "resnet8w", "resnet32")
    variants: tuple[str, ...] | None = None
    models: Path | None = None
    data: Path | None = None
    records: Path = FOLDER
    links: tuple[str, ...] | None = None
    repeats: int = 3
    spu: Path | None = None
    again: bool = False

    def once(self, bench: str, settings: Row, run: Callable[..., Row], *arguments: Any) -> Row:
        """The recorded result of a run, or that of `run(*arguments)` now."""
        return Records(bench, self.records).once(settings, partial(run, *arguments), self.again)
