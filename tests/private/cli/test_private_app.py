"""The commands of `thinwire private` without the lab, what importing them costs, and the old name."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata

import pytest

import thinwire_private
from thinwire.cli import main
from thinwire.errors import MissingPackageError
from thinwire_private.cli import COMMANDS, app

LIGHT = """
import sys
from thinwire_private.cli import COMMANDS
print([name for name in ("torch", "numpy", "typer", "rich", "thinwire_lab") if name in sys.modules])
"""


@pytest.fixture
def no_lab(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only thinwire-private is installed."""
    monkeypatch.setattr(app.metadata, "entry_points", lambda group: metadata.EntryPoints())


def test_the_core_finds_the_group_of_commands() -> None:
    assert list(COMMANDS) == ["private"]
    entries = metadata.entry_points(group="thinwire.commands")
    assert "thinwire_private.cli:COMMANDS" in [entry.value for entry in entries]


def test_the_lab_adds_its_commands() -> None:
    assert sorted(app.commands()) == sorted(app.ORDER)


@pytest.mark.usefixtures("no_lab")
def test_without_the_lab_the_commands_of_the_product_are_left() -> None:
    assert sorted(app.commands()) == ["certificate", "cost", "infer", "serve"]


@pytest.mark.usefixtures("no_lab")
@pytest.mark.parametrize("name", ["demo", "train", "search", "bench", "pareto"])
def test_without_the_lab_a_command_says_what_to_install(name: str) -> None:
    with pytest.raises(MissingPackageError, match="make setup in a clone of thinwire") as caught:
        COMMANDS["private"].run(["private", name])
    assert "\n" not in str(caught.value)


def test_errors_are_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["private", "cost", "nothing.twq"])
    printed = capsys.readouterr()
    assert (caught.value.code, printed.out) == (2, "")
    assert printed.err.startswith("thinwire: ")
    assert len(printed.err.splitlines()) == 1


def test_importing_the_commands_is_light() -> None:
    done = subprocess.run([sys.executable, "-c", LIGHT], check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_the_package_shows_its_public_names() -> None:
    assert dir(thinwire_private) == ["Client", "Limits", "Server", "__version__"]
    with pytest.raises(AttributeError, match="has no attribute 'Cliant': it has Client, Limits, Server"):
        _ = thinwire_private.Cliant


def test_the_old_name_still_works_and_warns() -> None:
    import thinwire.private

    with pytest.warns(DeprecationWarning, match="thinwire_private"):
        assert thinwire.private.Client is thinwire_private.Client
    with pytest.warns(DeprecationWarning, match="thinwire_private"):
        assert thinwire.private.Server is thinwire_private.Server
    with pytest.raises(AttributeError):
        _ = thinwire.private.__wrapped__


def test_the_old_name_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    import thinwire.private

    monkeypatch.setitem(sys.modules, "thinwire_private", None)
    with pytest.raises(MissingPackageError, match="pip install thinwire-private"):
        _ = thinwire.private.Client
