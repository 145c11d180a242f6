"""Imports go one way, the network and the native code have one door each, and `import thinwire` is lean."""

from __future__ import annotations

import ast
import importlib
import inspect
import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

import thinwire

# The core knows neither of the others by name; private inference does not know the lab.
PACKAGES = ("thinwire", "thinwire_private", "thinwire_lab")
ROOTS = {name: Path(importlib.import_module(name).__file__ or "").parent for name in PACKAGES}
ROOT = ROOTS["thinwire"]

# A module of the core may import modules of its own row and of the rows above it.
ROWS = (
    {"errors", "deprecated", "clock", "texts", "tensors", "devices", "frameworks"},
    {"kernels"},
    {"codecs"},
    {"feedback", "schedules"},
    {"groups"},
    {"routes"},
    {"plans"},
    {"exchange"},
    {"perf"},
    {"auto"},
    {"hooks"},
    {"optim"},
    {"lightning", "accelerate", "transformers", "ray"},
    {"__init__"},
    {"cli", "private"},
    {"__main__"},
)
# The same inside the lab.
LAB_ROWS = (
    {"process", "records", "spread"},
    {"data", "models"},
    {"net", "report"},
    {"run"},
    {"bench", "simulated", "study", "figure5", "private"},
    {"claims"},
    {"cli"},
)
PRIVATE_NEEDS = {"errors", "texts", "cli"}  # of the core: private inference exchanges no gradients
HEAVY = ("typer", "rich", "plotly", "matplotlib", "sklearn", "scipy", "pandas", "triton")
IMPORT_SHARE = 0.35  # of what importing torch takes in the same process: a busy or slow machine slows both

COST = f"""
import json, sys, time
start = time.process_time()
import torch
middle = time.process_time()
import thinwire
thinwire.compress
share = (time.process_time() - middle) / (middle - start)
print(json.dumps([share, [name for name in {HEAVY!r} if name in sys.modules]]))
"""


@cache
def imports(package: str = "thinwire") -> dict[str, set[str]]:
    """Every module of a package with everything it imports, lazily or not, as dotted names."""
    found = {}
    root = ROOTS[package]
    for path in sorted(root.rglob("*.py")):
        relative = path.relative_to(root).with_suffix("")
        parts = (
            relative.parts[:-1] if relative.name == "__init__" and len(relative.parts) > 1 else relative.parts
        )
        own = path.parent.relative_to(root.parent).parts
        found[".".join(parts)] = {
            name for node in ast.walk(ast.parse(path.read_text())) for name in _targets(node, own)
        }
    return found


def _targets(node: ast.AST, package: tuple[str, ...]) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        base = ".".join(package[: len(package) + 1 - node.level]) + "." if node.level else ""
        return [f"{base}{node.module or ''}".rstrip(".") + f".{alias.name}" for alias in node.names]
    return []


def _row(module: str) -> int:
    top = module.split(".")[0]
    rows = [index for index, row in enumerate(ROWS) if top in row]
    assert rows, f"thinwire.{module} has no row: give it its place in ROWS"
    return rows[0]


def _own_targets(module: str, package: str = "thinwire") -> set[str]:
    """What a module imports of its own package; `from thinwire.a import b` is thinwire.a.b if that is one."""
    targets, known = set(), imports(package)
    for name in known[module]:
        top, _, inner = name.partition(".")
        if top != package:
            continue
        while inner not in known and inner:
            inner = inner.rpartition(".")[0]
        targets.add(inner or "__init__")
    return targets - {module}


def test_there_are_modules() -> None:
    assert {
        "exchange.engine",
        "codecs.terngrad",
        "kernels.reference.ternary",
        "hooks.ddp",
    } <= imports().keys()
    assert "codecs.levels" in _own_targets("codecs.terngrad")
    assert "hooks.failures" in _own_targets("hooks.exchanger")
    assert "exchange.engine" in _own_targets("exchange.state")


@pytest.mark.parametrize("module", sorted(imports()))
def test_imports_go_one_way(module: str) -> None:
    backwards = {target for target in _own_targets(module) if _row(target) > _row(module)}
    assert not backwards, f"thinwire.{module} must not import {backwards}"


def test_packages_import_one_way() -> None:
    """The core stands alone but for the name that goes; private inference needs little of it."""
    for package in PACKAGES:
        for module, names in imports(package).items():
            tops = {name.partition(".")[0] for name in names} & set(PACKAGES) - {package}
            allowed = set(PACKAGES[: PACKAGES.index(package)])
            if (package, module) == ("thinwire", "private"):
                allowed = {"thinwire_private"}
            assert tops <= allowed, f"{package}.{module} must not import {tops - allowed}"
    used = {
        name.split(".")[1]
        for names in imports("thinwire_private").values()
        for name in names
        if name.startswith("thinwire.")
    }
    assert used <= PRIVATE_NEEDS


def test_groups_of_the_lab_import_one_way() -> None:
    def row(module: str) -> int:
        [index] = [i for i, names in enumerate(LAB_ROWS) if module.split(".")[0] in names]
        return index

    inside = [module for module in imports("thinwire_lab") if module != "__init__"]
    assert {module.split(".")[0] for module in inside} == set().union(*LAB_ROWS)
    for module in inside:
        backwards = {target for target in _own_targets(module, "thinwire_lab") if row(target) > row(module)}
        assert not backwards, f"thinwire_lab.{module} must not import {backwards}"


@pytest.mark.parametrize("package", PACKAGES)
def test_no_import_cycles(package: str) -> None:
    """Modules of one row may import each other, but not in a circle."""
    graph = {module: _own_targets(module, package) for module in imports(package)}
    while leaves := {module for module, targets in graph.items() if not targets & graph.keys()}:
        graph = {module: targets for module, targets in graph.items() if module not in leaves}
    assert not graph, f"these modules import each other in a circle: {sorted(graph)}"


def test_one_door_to_the_network() -> None:
    doors = {m for m, names in imports().items() if any(n.startswith("torch.distributed") for n in names)}
    assert {door.split(".")[0] for door in doors} <= {"groups", "hooks", "perf", "cli"}


def test_one_door_to_native_code() -> None:
    users = {path for path in ROOT.rglob("*.py") if "kernels._native" in path.read_text()}
    assert users == {ROOT / "kernels" / "choice.py"}


def test_import_is_lean() -> None:
    """No heavy package comes along; it adds little to what torch takes, in the best of 3 processes."""
    best = float("inf")
    for _ in range(3):
        output = subprocess.run(
            [sys.executable, "-c", COST], check=True, capture_output=True, text=True
        ).stdout
        share, heavy = json.loads(output)
        assert heavy == []
        best = min(best, share)
        if best < IMPORT_SHARE:
            return
    pytest.fail(f"import thinwire takes {best:.0%} of the time of import torch")


def test_only_public_names_are_shown() -> None:
    """dir() showed 25 modules."""
    shown = [name for name in dir(thinwire) if not name.startswith("__")]
    assert shown == sorted(thinwire.__all__)
    for name in thinwire.__all__:
        found = getattr(thinwire, name)
        home = found.__name__ if inspect.ismodule(found) else found.__module__
        assert home.startswith("thinwire."), name
    with pytest.raises(AttributeError, match="no attribute 'comprss': it has Bins, Cast, Clip, Codec"):
        _ = thinwire.comprss  # type: ignore[attr-defined]


def test_every_argument_of_compress_is_explained() -> None:
    arguments = list(inspect.signature(thinwire.compress).parameters)
    assert [name for name in arguments if f"`{name}`" not in (thinwire.compress.__doc__ or "")] == []
    options = inspect.signature(thinwire.ddp_hook).parameters
    named = [name for name in options if name != "options"]
    assert [name for name in named if f"`{name}`" not in (thinwire.ddp_hook.__doc__ or "")] == []
    for method in (thinwire.Compressor.observe, thinwire.Compressor.load_state_dict):
        for name in list(inspect.signature(method).parameters)[1:]:
            assert f"`{name}`" in (method.__doc__ or ""), (method, name)


def test_the_command_line_does_not_wait_for_torch() -> None:
    """Help, and mistakes in names, need no torch, which takes seconds."""
    code = "import sys; from thinwire.cli import commands; commands(); print('torch' in sys.modules)"
    output = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert output.strip() == "False"
