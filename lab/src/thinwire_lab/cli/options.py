"""Options that several commands share, and codecs as they are listed in one."""

from __future__ import annotations

import csv
import re
from pathlib import Path
from typing import Annotated

import typer

TaskName = Annotated[
    str,
    typer.Argument(
        help="digits, mnist, fashion-mnist, cifar10, shakespeare, cifar10-study or shakespeare-study."
    ),
]
Seed = Annotated[int, typer.Option(help="Seed of weights, data order and codec.")]
Data = Annotated[
    Path | None, typer.Option(help="Folder of data sets; default: a cache folder, filled by download.")
]
Out = Annotated[Path, typer.Option(help="Where the run folder is made.")]
NetworkName = Annotated[str, typer.Option(help="auto, netlab (root), emulated, loopback or virtual.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON rows instead of a table.")]
Picture = Annotated[bool, typer.Option("--png", help="Also write report.png.")]


def split_codecs(text: str) -> tuple[str, ...]:
    """Codecs separated by commas; "option=value" after a comma belongs to the codec before it.

    Double quotes around a codec are taken off.

    >>> split_codecs('ddp, gradiveq:4,slice=64 >> qsgd:8,"topk:0.01,chunk=64"')
    ('ddp', 'gradiveq:4,slice=64 >> qsgd:8', 'topk:0.01,chunk=64')
    """
    names: list[str] = []
    for piece in next(csv.reader([text], skipinitialspace=True), []):
        if names and re.match(r"\s*\w+\s*=", piece):
            names[-1] += f",{piece.strip()}"
        else:
            names.append(piece.strip())
    return tuple(name for name in names if name)
