"""The commands that README and docs name can be parsed: names, options and arguments exist."""

from __future__ import annotations

import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

import pytest
import typer

from thinwire_lab.cli.app import make_app
from thinwire_private.cli.app import make_app as make_private_app

ROOT = Path(__file__).resolve().parents[2]
MUST_HAVE = (
    "README.md",
    "docs/how-to/report.md",
    "docs/background/speed.md",
    "docs/background/accuracy.md",
    "docs/how-to/auto.md",
    "docs/background/private.md",
    "docs/reference/commands.md",
)
PAGES = ("README.md", *sorted(page.relative_to(ROOT).as_posix() for page in (ROOT / "docs").rglob("*.md")))
UsageError: Any = typer.BadParameter.__base__  # of click, or of the copy that typer brings along
IN_TEXT = re.compile(r"`(thinwire [^`]+)`")
IN_BLOCK = re.compile(r"^(?:\.venv/bin/)?(thinwire .+?)(?:\s+#.*)?$", re.M)


def commands(text: str) -> list[str]:
    """Those in blocks of code and those inside a sentence, which may go on in the next line."""
    blocks = re.findall(r"^```\n(.*?)^```", re.sub(r"\\\n\s*", "", text), re.M | re.S)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)
    found = [line for block in blocks for line in IN_BLOCK.findall(block)]
    return found + [re.sub(r"\s+", " ", words) for words in IN_TEXT.findall(prose)]


@cache
def root() -> Any:
    app = make_app()
    app.add_typer(make_private_app(), name="private")
    return typer.main.get_command(app)


def refuse(message: str) -> NoReturn:
    raise UsageError(message)


def parse(words: list[str]) -> None:
    """Goes down to the command and lets it read its options; runs nothing."""
    if words[:1] == ["plan"] or words[:1] == ["doctor"]:
        made = importlib.import_module(f"thinwire.cli.{words[0]}").parser()
        made.error = refuse
        made.parse_args(words[1:])
        return
    node = root()
    context = typer.Context(node, info_name="thinwire")
    while hasattr(node, "resolve_command") and words:
        name, node, words = node.resolve_command(context, words)
        context = typer.Context(node, info_name=name, parent=context)
    if words:  # else a sentence only names the command
        node.make_context("thinwire", words)


@pytest.mark.parametrize("page", PAGES)
def test_commands_of_a_page_can_be_parsed(page: str) -> None:
    found = commands((ROOT / page).read_text())
    assert found or page not in MUST_HAVE
    for command in found:
        try:
            parse(shlex.split(re.sub(r"[\[\]]", "", command))[1:])  # [--option]: it may be left out
        except UsageError as error:
            pytest.fail(f"{page}: {command}: {error.format_message()}")


def test_a_command_that_does_not_exist_is_found() -> None:
    block = "```\nthinwire compare digits   # a comment\n.venv/bin/thinwire \\\n  demo\n```\n"
    page = f"`thinwire demo`, `thinwire plan\nalexnet`\n{block}"
    assert commands(page) == [
        "thinwire compare digits",
        "thinwire demo",
        "thinwire demo",
        "thinwire plan alexnet",
    ]
    for line in ("trian", "bench stpe", "compare digits --codec x", "plan --wrokers 4", "doctor --fast"):
        with pytest.raises(UsageError):
            parse(line.split())
