"""thinwire bench: speed, memory and digests; what is compared takes turns, results come with spread."""

from __future__ import annotations

import typer

from thinwire_lab.cli.bench.cells import auto, clusters, grid, step
from thinwire_lab.cli.bench.micro import digests, exchange, kernels, memory

bench = typer.Typer(
    help="Measure kernels, an exchange, a training step, a grid of forecasts; or print digests of results.",
    no_args_is_help=True,
)
for command in (kernels, exchange, step, grid, auto, clusters, digests, memory):
    bench.command()(command)
