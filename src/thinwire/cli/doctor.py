"""thinwire doctor: what is installed, which kernels run, whether netlab can run, how fast the link is."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def doctor(
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Measure the link between two workers of this machine.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Check this machine: versions, kernels and their speed, netlab, and the speed of a link.

    \b
    Examples:
      thinwire doctor
      thinwire doctor --json
      thinwire netlab --hosts 2 --rate 100mbit --rank0 -- thinwire doctor   # from inside a shaped host
    """
    from thinwire.lab.doctor import examine

    findings = examine(measure_link=link)
    if as_json:
        typer.echo(json.dumps({finding.name: finding.value for finding in findings}))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(show_header=False, box=None)
    for finding in findings:
        mark = "[green]ok[/]" if finding.good else "[yellow]--[/]"
        table.add_row(mark, finding.name, finding.value)
    Console().print(table)
