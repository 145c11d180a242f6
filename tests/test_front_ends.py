"""Front ends without their framework: one sentence that says what to install. With it: tests/frontends."""

from __future__ import annotations

import importlib
from importlib.util import find_spec

import pytest


@pytest.mark.parametrize("name", ["lightning", "accelerate", "transformers", "ray"])
def test_a_missing_framework_is_named_with_the_version_that_works(name: str) -> None:
    if find_spec(name) is not None:
        pytest.skip(f"{name} is installed here")
    with pytest.raises(ImportError, match=rf"thinwire\.{name} needs .* or newer: pip install"):
        importlib.import_module(f"thinwire.{name}")
