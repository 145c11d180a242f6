"""The command line: one file per command; parse, call, print. Errors become one line and exit code 2."""

from __future__ import annotations

import sys

from thinwire.errors import ThinwireError, how_to_install


def main() -> None:
    """Entry point of the `thinwire` command. Without the [lab] extra (typer, rich) it says how to get it."""
    try:
        import typer
    except ImportError:
        sys.exit(f"the thinwire command needs the lab extra: {how_to_install('typer rich', 'lab')}")
    from thinwire.cli.app import make_app

    try:
        make_app()()
    except ThinwireError as error:
        typer.secho(f"thinwire: {error}", fg="red", err=True)
        sys.exit(2)
