"""The examples in the docstrings of the core run as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import thinwire

DEPRECATED = "thinwire.private"  # warns when it is touched
FRONT_ENDS = {f"thinwire.{name}" for name in ("lightning", "accelerate", "transformers", "ray")}
MODULES = [
    module.name
    for module in pkgutil.walk_packages(thinwire.__path__, "thinwire.", onerror=lambda name: None)
    if module.name not in {DEPRECATED, *FRONT_ENDS} and not module.name.endswith("_native")
]


def test_there_are_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        e for name in MODULES for test in finder.find(importlib.import_module(name)) for e in test.examples
    ]
    assert len(examples) >= 10


@pytest.mark.parametrize("name", ["thinwire", *MODULES])
def test_examples(name: str) -> None:
    result = doctest.testmod(importlib.import_module(name))
    assert result.failed == 0
