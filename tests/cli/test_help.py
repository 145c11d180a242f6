"""Help: every command explains itself and shows how it is called."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from printed import Call

from thinwire.cli import OWN
from thinwire_lab.cli.app import COMMANDS, make_app


def commands(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    below = getattr(node, "commands", None)
    if below is None:
        yield path
    for name, inner in (below or {}).items():
        yield from commands(inner, (*path, name))


ALL = sorted([*commands(typer.main.get_command(make_app())), *((name,) for name in OWN)])


def test_all_commands_are_found() -> None:
    assert {path[0] for path in ALL} == {*COMMANDS, *OWN}
    assert ("bench", "kernels") in ALL
    assert ("study", "errors") in ALL


@pytest.mark.parametrize("path", ALL, ids=" ".join)
def test_help_shows_an_example(call: Call, path: tuple[str, ...]) -> None:
    printed = call(*path, "--help")
    assert printed.code == 0
    assert f" thinwire {' '.join(path)}" in printed.out
    assert "--help" in printed.out


def test_options_of_a_run_are_the_same_in_train_and_compare(call: Call) -> None:
    names = ("workers", "rate", "model", "epochs", "steps", "batch", "lr", "evaluations", "seed", "out")
    for command in ("train", "compare"):
        text = call(command, "--help").out
        assert [name for name in names if f"--{name} " not in text] == []


def test_no_command_is_help(call: Call) -> None:
    text = call().out
    assert [name for name in (*COMMANDS, *OWN) if name not in text] == []
    assert "kernels" in call("bench").out


def test_an_unknown_command_is_refused(call: Call) -> None:
    printed = call("trian")
    assert (printed.code, printed.out) == (2, "")
    assert "trian" in printed.err


def test_it_is_a_module_too() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "thinwire", "--version"], capture_output=True, text=True, check=False
    )
    assert done.stdout.startswith("thinwire ")
