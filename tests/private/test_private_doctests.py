"""The examples in the docstrings of private inference run as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import thinwire_private

MODULES = [
    module.name
    for module in pkgutil.walk_packages(thinwire_private.__path__, "thinwire_private.")
    if not module.name.endswith("_native")
]


def test_examples() -> None:
    results = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 10
