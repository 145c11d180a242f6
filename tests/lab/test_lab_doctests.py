"""The examples in the docstrings of the lab and the command line run as they are written."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import thinwire_lab
import thinwire_lab.cli

MODULES = [
    module.name
    for package in (thinwire_lab, thinwire_lab.cli)
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
]


def test_examples() -> None:
    results = {name: doctest.testmod(importlib.import_module(name)) for name in MODULES}
    assert [name for name, result in results.items() if result.failed] == []
    assert sum(result.attempted for result in results.values()) >= 10
