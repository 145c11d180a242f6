"""Front ends without their framework: one sentence that says what to install. With it: tests/frontends."""

from __future__ import annotations

import importlib
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

NAMES = ("lightning", "accelerate", "transformers", "ray")


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_framework_is_named_with_the_version_that_works(name: str) -> None:
    if find_spec(name) is not None:
        pytest.skip(f"{name} is installed here")
    with pytest.raises(ImportError, match=rf"thinwire\.{name} needs .* or newer: pip install"):
        importlib.import_module(f"thinwire.{name}")


@pytest.mark.parametrize("name", NAMES)
def test_one_that_is_too_old_is_named_with_its_version(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A package of that version, found by its metadata before an installed one."""
    about = tmp_path / f"{name}-1.2.3.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.2.3\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, f"thinwire.{name}", raising=False)
    with pytest.raises(
        ImportError, match=rf"thinwire\.{name} needs {name} .* or newer, here is 1\.2\.3: pip"
    ):
        importlib.import_module(f"thinwire.{name}")
