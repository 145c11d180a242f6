"""The `thinwire` command: collects the commands and turns errors into one line."""

from __future__ import annotations

import importlib
import sys


def main() -> None:
    """Entry point. Without the [lab] extra (typer, rich) it says how to get it."""
    try:
        import typer
    except ImportError:
        sys.exit('the thinwire command needs the lab extra: pip install "thinwire[lab]"')
    from thinwire.errors import ThinwireError

    try:
        _app(typer)()
    except ThinwireError as error:
        typer.secho(f"thinwire: {error}", fg="red", err=True)
        sys.exit(2)


COMMANDS = ("demo", "train", "compare", "bench", "plan", "report", "doctor", "netlab")
_PASS_THROUGH = {"netlab": {"allow_interspersed_args": False}}  # what follows belongs to the command it runs


def _app(typer):  # type: ignore[no-untyped-def]
    """The typer application; every command is a function (or an app) of its own name in a module of its own name."""
    app = typer.Typer(
        help="Deep learning that sends fewer bytes over the network.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )

    def version(show: bool) -> None:
        if show:
            from thinwire import __version__

            typer.echo(f"thinwire {__version__}")
            raise typer.Exit

    @app.callback()
    def root(show: bool = typer.Option(False, "--version", callback=version, is_eager=True)) -> None:
        """Deep learning that sends fewer bytes over the network."""

    for name in COMMANDS:
        command = getattr(importlib.import_module(f"thinwire.cli.{name}"), name)
        if isinstance(command, typer.Typer):
            app.add_typer(command, name=name)
        else:
            app.command(name, context_settings=_PASS_THROUGH.get(name))(command)
    return app
