"""`thinwire private`: serve, infer, cost and certificate; an installed lab adds its own commands.

Another package adds commands by an entry point of the group `thinwire.private.commands`: a mapping of names
to functions that typer understands.
"""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.cli import Command


def run(arguments: Sequence[str]) -> None:
    """Runs `thinwire private ...`; the first argument is "private"."""
    from thinwire_private.cli.app import make_app

    make_app(arguments[1:])(args=list(arguments[1:]), prog_name="thinwire private")


COMMANDS = {"private": Command("Private inference: a server's network on a client's input.", run)}
