"""The `thinwire` command: its own commands need torch and numpy; other packages add theirs.

An installed package adds commands by an entry point of the group `thinwire.commands`: a mapping of names to
`Command`. Errors become one line and exit code 2.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata

from thinwire.errors import ThinwireError

GROUP = "thinwire.commands"
PRIVATE = "thinwire-private, or run make setup in a clone of thinwire"
LAB = "the lab, which is not published: run make setup in a clone of thinwire"
# What other packages add, and how to get them where they are missing.
ELSEWHERE = {
    "private": PRIVATE,
    **dict.fromkeys(
        ("demo", "train", "compare", "bench", "study", "claims", "figure5", "report", "picture", "netlab"),
        LAB,
    ),
}


@dataclass(frozen=True)
class Command:
    """One line of help, and what runs: it gets all arguments, the command's name first."""

    help: str
    run: Callable[[Sequence[str]], None]


def _plan(arguments: Sequence[str]) -> None:
    from thinwire.cli.plan import run

    run(arguments)


def _doctor(arguments: Sequence[str]) -> None:
    from thinwire.cli.doctor import run

    run(arguments)


OWN = {
    "plan": Command("What would travel for a model, and what a step would take on a cluster.", _plan),
    "doctor": Command("What thinwire can do on this machine, and how fast.", _doctor),
}


def commands() -> dict[str, Command]:
    """All commands that are installed, by name."""
    found = dict(OWN)
    for entry in metadata.entry_points(group=GROUP):
        added: Mapping[str, Command] = entry.load()
        found |= added
    return found


def main(arguments: Sequence[str] | None = None) -> None:
    """Entry point of the `thinwire` command."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    known = commands()
    name = given[0] if given else "--help"
    if name in ("-h", "--help"):
        print(_help(known))
    elif name == "--version":
        from thinwire import __version__

        print(f"thinwire {__version__}")
    elif name in known:
        try:
            known[name].run(given)
        except ThinwireError as error:
            _fail(str(error))
        except BrokenPipeError:  # whoever reads has seen enough: `thinwire ... | head`
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    elif name in ELSEWHERE:
        _fail(f'"{name}" is a command of another package: install {ELSEWHERE[name]}')
    else:
        close = difflib.get_close_matches(name, known, 1)
        hint = f'did you mean "{close[0]}"? ' if close else ""
        _fail(f'there is no command "{name}": {hint}known are {", ".join(known)}')


def _help(known: Mapping[str, Command]) -> str:
    lines = [f"  {name:<10} {command.help}" for name, command in known.items()]
    missing = [name for name in ELSEWHERE if name not in known]
    more = ["", f"Not installed here: {', '.join(missing)}."] if missing else []
    return "\n".join(
        [
            "usage: thinwire [--help] [--version] COMMAND ...",
            "",
            "Deep learning that sends fewer bytes over the network.",
            "",
            *lines,
            *more,
            "",
            "thinwire COMMAND --help explains a command, with examples.",
        ]
    )


def _fail(message: str) -> None:
    red, plain = ("\033[31m", "\033[0m") if sys.stderr.isatty() else ("", "")
    print(f"{red}thinwire: {message}{plain}", file=sys.stderr)
    sys.exit(2)
