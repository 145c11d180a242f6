"""The lab's commands: parse, call, print. The core's `thinwire` finds them here."""

from __future__ import annotations

from collections.abc import Sequence

from thinwire.cli import Command


def run(arguments: Sequence[str]) -> None:
    """Runs one of them by the typer application, with all arguments."""
    from thinwire_lab.cli.app import make_app

    make_app()(args=list(arguments), prog_name="thinwire")


COMMANDS = {
    "demo": Command("See it work in a minute: terngrad beside plain DDP on digits, over a slow link.", run),
    "train": Command("Train a model with one codec, report bytes, time and accuracy.", run),
    "compare": Command("Train with several codecs, compare bytes, time and accuracy.", run),
    "bench": Command("Measure kernels, exchanges, steps, auto.", run),
    "study": Command("What codecs do to gradients and to accuracy.", run),
    "claims": Command("The papers' claims, each judged by a command.", run),
    "figure5": Command("TernGrad's performance model beside ours.", run),
    "report": Command("The page of recorded runs.", run),
    "picture": Command("The README's picture, from recorded runs.", run),
    "netlab": Command("Run a command on hosts with slow links, all on this machine.", run),
}
