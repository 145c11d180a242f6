"""One version number, in src/thinwire/__init__.py; metadata claim no more than what is tested."""

from __future__ import annotations

import importlib.metadata
import re
import tomllib
from pathlib import Path

import thinwire

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_the_version_is_written_once() -> None:
    """pyproject.toml reads it from the package; CITATION.cff cannot and must agree."""
    assert "version" in PROJECT["project"]["dynamic"]
    assert PROJECT["tool"]["scikit-build"]["metadata"]["version"]["input"] == "src/thinwire/__init__.py"
    assert importlib.metadata.version("thinwire") == thinwire.__version__
    cited = re.search(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), re.M)
    assert cited is not None
    assert cited[1] == thinwire.__version__


def test_the_metadata_claim_the_oldest_torch_that_was_tested() -> None:
    """docs/how-to/release.md has a row for each torch that was tested, the pinned one among them."""
    page = (ROOT / "docs" / "how-to" / "release.md").read_text()
    rows = re.findall(r"^\| (\d+)\.(\d+)\.(\d+) \|.*\| yes \|$", page, re.M)
    tested = {tuple(map(int, row)) for row in rows}
    pinned = re.search(r"^torch==(\d+)\.(\d+)\.(\d+)", (ROOT / "constraints.txt").read_text(), re.M)
    assert pinned is not None
    assert tuple(map(int, pinned.groups())) in tested
    major, minor, _ = min(tested)
    for project in (PROJECT, tomllib.loads((ROOT / "private" / "pyproject.toml").read_text())):
        assert f"torch>={major}.{minor}" in project["project"]["dependencies"]


def test_the_hosted_ci_runs_the_oldest_python_that_is_claimed() -> None:
    oldest = PROJECT["project"]["requires-python"].removeprefix(">=")
    assert f'python: ["{oldest}"' in (ROOT / ".github" / "workflows" / "ci.yml").read_text()
