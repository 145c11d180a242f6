"""thinwire bench: speed, memory and digests; what is compared takes turns, results come with spread."""

from __future__ import annotations

import typer

from thinwire_lab.cli.bench.auto import auto
from thinwire_lab.cli.bench.clusters import clusters
from thinwire_lab.cli.bench.digests import digests
from thinwire_lab.cli.bench.exchange import exchange
from thinwire_lab.cli.bench.grid import grid
from thinwire_lab.cli.bench.kernels import kernels
from thinwire_lab.cli.bench.memory import memory
from thinwire_lab.cli.bench.step import step

bench = typer.Typer(
    help="Measure kernels, an exchange, a training step, a grid of forecasts; or print digests of results.",
    no_args_is_help=True,
)
for command in (kernels, exchange, step, grid, auto, clusters, digests, memory):
    bench.command()(command)
