"""thinwire bench: speed, memory and digests; what is compared takes turns, results come with spread."""

from __future__ import annotations

import typer

from thinwire.cli.bench.auto import auto
from thinwire.cli.bench.clusters import clusters
from thinwire.cli.bench.digests import digests
from thinwire.cli.bench.exchange import exchange
from thinwire.cli.bench.grid import grid
from thinwire.cli.bench.kernels import kernels
from thinwire.cli.bench.memory import memory
from thinwire.cli.bench.step import step

bench = typer.Typer(
    help="Measure kernels, an exchange, a training step, a grid of forecasts; or print digests of results.",
    no_args_is_help=True,
)
for command in (kernels, exchange, step, grid, auto, clusters, digests, memory):
    bench.command()(command)
