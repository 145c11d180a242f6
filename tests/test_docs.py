"""Pages have short lines and working links; docs/reference/api.md matches the docstrings."""

from __future__ import annotations

import importlib.util
import re
import sys
from functools import cache
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote

import pytest

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 139
README_BYTES = 7_000
GROUPS = ("tutorials", "how-to", "reference", "background")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
PAGES = sorted(
    path
    for pattern in (
        "*.md",
        ".github/**/*.md",
        *(f"{folder}/**/*.md" for folder in ("docs", "examples", "tests", "csrc", "src", "private", "lab")),
    )
    for path in ROOT.glob(pattern)
)


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def long_lines(page: Path) -> list[int]:
    """Rows of tables and commands in blocks of code cannot be broken."""
    found, code = [], False
    for number, line in enumerate(page.read_text().splitlines(), 1):
        code ^= line.lstrip().startswith("```")
        if len(line) > LONGEST and not code and not line.startswith("|"):
            found.append(number)
    return found


def anchors(page: Path) -> set[str]:
    """What headings can be called by, as hosts of Markdown make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    broken = []
    for match in LINK.finditer(re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(), flags=re.S)):
        target = match[1] or match[2]
        if re.match(r"[a-z]+:", target):
            continue  # the world outside
        path, _, anchor = unquote(target).partition("#")
        there = (page.parent / path).resolve() if path else page
        if not there.exists() or (anchor and there.suffix == ".md" and anchor not in anchors(there)):
            broken.append(target)
    return broken


def test_there_are_pages() -> None:
    names = {"README.md", "docs/reference/wire.md", "docs/reference/api.md", "examples/README.md"}
    assert names <= {name_of(page) for page in PAGES}


def test_the_readme_is_one_page() -> None:
    assert (ROOT / "README.md").stat().st_size <= README_BYTES


def test_every_page_is_in_one_of_the_groups_and_on_the_site() -> None:
    site = (ROOT / "tools" / "mkdocs.yml").read_text()
    buffers = [page.relative_to(ROOT / "docs").as_posix() for page in (ROOT / "docs").rglob("*.md")]
    assert {page.split("/")[0] for page in buffers} == {"index.md", *GROUPS}
    assert [page for page in buffers if f"{page}\n" not in site] == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_lines_are_short(page: Path) -> None:
    assert long_lines(page) == []


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_work(page: Path) -> None:
    assert broken_links(page) == []


def test_long_lines_and_broken_links_are_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(
        f"# A heading: of two\n{'x' * 140}\n| {'y' * 150} |\n```\n{'z' * 150}\n```\n"
        "[here](#a-heading-of-two) [there](page.md#nowhere) [gone](gone.md) `[code](none.md)` [out](https://x.org)\n"
    )
    assert long_lines(page) == [2]
    assert broken_links(page) == ["page.md#nowhere", "gone.md"]


@cache
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_api", ROOT / "tools" / "make_api.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["make_api"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_everything_public_has_a_docstring() -> None:
    assert generator().undocumented() == []


class Told:
    """A class on the page."""

    def told(self) -> None:
        """Told."""

    def inherited(self) -> None:
        """Told as well."""


class Bare(Told):
    """Overrides one of the two, and has a method of its own."""

    def told(self) -> None: ...

    def untold(self) -> None: ...


def test_a_missing_docstring_is_found_and_nothing_is_told_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    for function in (Told.told, Told.inherited, Bare.told, Bare.untold):
        monkeypatch.setattr(function, "__module__", "thinwire.nowhere")
    alone = [generator().Entry(name, found, 4) for name, found in generator().members(Bare)]
    assert [entry.name for entry in alone if not entry.doc] == ["told", "untold"]
    assert [name for name, _ in generator().members(Bare, [Told])] == ["untold"]


def test_the_api_page_is_up_to_date() -> None:
    assert (ROOT / "docs" / "reference" / "api.md").read_text() == generator().page(), "run `make docs`"
