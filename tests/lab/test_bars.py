"""Bars of long commands: the time left on a terminal, nothing elsewhere."""

from __future__ import annotations

import pytest

from thinwire_lab.cli.bars import ProgressBar


@pytest.mark.parametrize(("terminal", "quiet"), [("0", False), ("1", True)])
def test_nothing_is_written_without_a_terminal_or_when_quiet(
    terminal: str, quiet: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", terminal)
    with ProgressBar(quiet) as bar:
        assert list(bar.over("abc", "letters", 3)) == ["a", "b", "c"]
    assert capsys.readouterr() == ("", "")


def test_a_terminal_gets_the_time_left_on_standard_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    with ProgressBar(quiet=False) as bar:
        bar.tell("cell 2 of 3", 2, 3)
        bar.tell("another run", 1, 3)  # begins anew
    out, err = capsys.readouterr()
    assert out == ""
    assert "another run" in err
    assert "33%" in err
    assert "left" in err
