"""thinwire doctor: what is installed, which kernels run, whether netlab can run, how fast the link is."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from thinwire_lab.cli.options import split_codecs


def doctor(
    link: Annotated[
        bool, typer.Option("--link/--no-link", help="Measure the link between two workers of this machine.")
    ] = True,
    probe: Annotated[
        bool, typer.Option("--probe", help="Calibrate: collectives and codecs, all workers at once.")
    ] = False,
    codecs: Annotated[
        str, typer.Option(help="With --probe: the codecs to measure.")
    ] = "fp16,terngrad,qsgd:4,topk:0.01",
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object instead of a table.")] = False,
) -> None:
    """Check this machine: versions, kernels and their speed, netlab, and the speed of a link.

    With --probe it measures, in a few seconds, how long the collectives of a group take, alone and while
    workers compute, and how fast codecs are while all workers run; forecasts go by that
    (docs/performance-model.md). Under torchrun that is torchrun's own group, else two workers of this
    machine. What was found is kept in the cache folder for a week.

    \b
    Examples:
      thinwire doctor
      thinwire doctor --json
      thinwire doctor --probe --codecs "terngrad,gradiveq:8"
      torchrun --nproc-per-node 4 -m thinwire doctor --probe --json
      thinwire netlab --hosts 2 --rate 100mbit --rank0 -- thinwire doctor   # from inside a shaped host
    """
    if probe:
        _probe(split_codecs(codecs), as_json)
        return
    from thinwire_lab.doctor import examine

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


def _probe(codecs: tuple[str, ...], as_json: bool) -> None:
    """Rank 0 prints; a group of one is an error, which says what to do."""
    from thinwire_lab.net.probing import probe_group, probe_two, under_launcher

    made = probe_group(codecs) if under_launcher() else probe_two(codecs)
    if made is not None:
        typer.echo(json.dumps(made.to_json()) if as_json else str(made))
