"""The typer application of all commands."""

from __future__ import annotations

import importlib
from typing import Annotated, Any

import typer

# In the order of --help: a command, and the module that has a function (or an app) of its name.
COMMANDS = {
    "demo": "runs",
    "train": "runs",
    "compare": "runs",
    "bench": "bench",
    "study": "study",
    "claims": "claims",
    "figure5": "figures",
    "report": "runs",
    "picture": "figures",
    "netlab": "netlab",
}
# What follows the command that netlab runs belongs to that command.
SETTINGS: dict[str, dict[str, Any]] = {"netlab": {"allow_interspersed_args": False}}


def _version(show: bool) -> None:
    if show:
        from thinwire import __version__

        typer.echo(f"thinwire {__version__}")
        raise typer.Exit


def root(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Deep learning that sends fewer bytes over the network."""


def make_app() -> typer.Typer:
    """The application with all its commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(root)
    for name, module in COMMANDS.items():
        command = getattr(importlib.import_module(f"thinwire_lab.cli.{module}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, context_settings=SETTINGS.get(name))(command)
    return app
