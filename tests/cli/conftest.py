"""The command as a user meets it, without a process of its own: `main` with arguments, and what it prints."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from printed import Call, Printed

from forked_workers import forked_loopback
from thinwire.cli import main


@pytest.fixture
def call(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Call:
    """`call("train", "digits")` is `thinwire train digits`."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*words: str) -> Printed:
        monkeypatch.setattr(sys, "argv", ["thinwire", *words])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0
        return Printed(code, *capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def forked_workers() -> Iterator[None]:
    """Saves the seconds in which every worker imports torch."""
    with forked_loopback():
        yield
