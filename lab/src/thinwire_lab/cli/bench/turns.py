"""Turns: a bench whose workers take turns, its progress on stderr and its results as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from thinwire_lab.net.network import Network

Row = dict[str, Any]


def turn_results(
    module: str,
    job: dict[str, Any],
    network: Network,
    hosts: int,
    quiet: bool,
    trace: Path | None = None,
) -> Iterator[Row]:
    """The result rows; turns are shown as progress on stderr, a timeline goes to a file."""
    from rich.console import Console
    from rich.progress import Progress

    from thinwire_lab.bench.trace import Bar, write_trace
    from thinwire_lab.net.workers import run_workers

    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("turns", total=None)
        for row in run_workers(module, job, network, hosts):
            if row["row"] == "turn":
                progress.update(task, completed=row["turn"], total=row["of"])
            elif row["row"] == "result":
                yield {key: value for key, value in row.items() if key != "row"}
            elif row["row"] == "trace" and trace is not None:
                write_trace(trace, [Bar(**bar) for bar in row["bars"]])
