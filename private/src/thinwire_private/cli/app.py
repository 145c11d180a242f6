"""The typer application of `thinwire private`: its own commands and those of other installed packages."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import metadata

import typer

from thinwire.cli import LAB
from thinwire.errors import MissingPackageError
from thinwire_private.cli.commands import certificate, cost, infer, serve

GROUP = "thinwire.private.commands"
# The order of --help is the order in which a new user needs them.
ORDER = ("demo", "train", "search", "cost", "serve", "infer", "certificate", "bench", "pareto")


def make_app(arguments: Sequence[str] = ()) -> typer.Typer:
    """The application; refuses a command that is not installed and says what to install."""
    known = commands()
    if arguments and arguments[0] in ORDER and arguments[0] not in known:
        raise MissingPackageError(
            f'"thinwire private {arguments[0]}" is a command of another package: install {LAB}'
        )
    app = typer.Typer(
        help="Private inference: a server's network on a client's input, neither seen by the other.",
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    for name in sorted(known, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER)):
        app.command(name)(known[name])
    return app


def commands() -> dict[str, Callable[..., None]]:
    """All commands that are installed, by name."""
    found: dict[str, Callable[..., None]] = {
        "cost": cost,
        "serve": serve,
        "infer": infer,
        "certificate": certificate,
    }
    for entry in metadata.entry_points(group=GROUP):
        found |= entry.load()
    return found
