"""`thinwire bench clusters`: what `auto` decides on simulated clusters, under a clock of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from thinwire_lab.cli.bench.options import Json


def clusters(
    scenarios: Annotated[int, typer.Option(help="How many.", min=1)] = 2000,
    first: Annotated[int, typer.Option(help="The seed of the first one; the others follow.", min=0)] = 0,
    records: Annotated[Path | None, typer.Option(help="A file for one line a decision.")] = None,
    as_json: Json = False,
) -> None:
    """Let auto decide on random simulated clusters and judge its decisions by their true step times.

    Latency 0.05 to 100 ms, 5 Mbit/s to 100 Gbit/s, token buckets, jitter, slow ranks and links, busy cores,
    50 thousand to 100 million parameters, 2 to 64 workers, links that change. Probes, fits, forecasts, trials
    and watch are the real code; how long a collective takes is simulated. Exits with 1 if a limit is missed.

    \b
    Examples:
      thinwire bench clusters
      thinwire bench clusters --scenarios 200 --first 5000 --records runs/clusters.jsonl
    """
    from rich.console import Console
    from rich.progress import track

    from thinwire_lab.simulated.scenario import Summary, play

    console = Console(stderr=True)
    seeds = range(first, first + scenarios)
    outcomes = [
        outcome
        for seed in track(seeds, "scenarios", console=console, transient=True, disable=as_json)
        for outcome in play(seed)
    ]
    if records is not None:
        records.parent.mkdir(parents=True, exist_ok=True)
        records.write_text("".join(json.dumps(outcome.to_json()) + "\n" for outcome in outcomes))
    summary = Summary.of(outcomes)
    typer.echo(json.dumps(summary.to_json()) if as_json else str(summary))
    if not summary.holds:
        raise typer.Exit(1)
