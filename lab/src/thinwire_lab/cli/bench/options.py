"""Options that several benches share."""

from __future__ import annotations

from typing import Annotated

import typer

Hosts = Annotated[int, typer.Option(help="Number of hosts.", min=1)]
Rate = Annotated[str, typer.Option(help="Rate of every link: 100mbit, 1gbit, ..., or none: no limit.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON row per line, nothing else on stdout.")]
NetworkChoice = Annotated[
    str, typer.Option("--network", help="auto, netlab (root; the kernel shapes real links) or emulated.")
]
Repeats = Annotated[int, typer.Option(help="Timed turns.", min=1)]
