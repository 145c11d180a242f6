"""Counts of the three packages: files, lines, what is too long, and class names that occur twice.

python tests/architecture/counts.py
"""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
PACKAGES = ("src/thinwire", "private/src/thinwire_private", "lab/src/thinwire_lab")
TESTS = "tests"
MAX_FILE_LINES, MAX_FUNCTION_LINES = 400, 50


@cache
def modules(folder: str) -> tuple[tuple[str, str, ast.Module], ...]:
    """Every Python file below a folder: its path in the repository, its text and its tree."""
    found = []
    for path in sorted((REPOSITORY / folder).rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        found.append((path.relative_to(REPOSITORY).as_posix(), text, ast.parse(text)))
    return tuple(found)


def num_lines(folder: str) -> int:
    """Lines of all files, empty ones too."""
    return sum(len(text.splitlines()) for _, text, _ in modules(folder))


def long_files(folders: Sequence[str]) -> list[str]:
    """Files above the limit, as "path: lines"."""
    sizes = ((path, len(text.splitlines())) for folder in folders for path, text, _ in modules(folder))
    return [f"{path}: {size}" for path, size in sizes if size > MAX_FILE_LINES]


def long_functions(folders: Sequence[str]) -> list[str]:
    """Functions above the limit, as "path:line name: lines", without docstrings.

    A nested function counts in the one around it.
    """
    return [
        f"{path}:{function.lineno} {function.name}: {size}"
        for folder in folders
        for path, _, tree in modules(folder)
        for function in _functions(tree)
        if (size := _size(function)) > MAX_FUNCTION_LINES
    ]


def _size(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    first = function.body[0]
    documented = ast.get_docstring(function) is not None
    docstring = (first.end_lineno or 0) - first.lineno + 1 if documented else 0
    return (function.end_lineno or 0) - function.lineno + 1 - docstring


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def homonyms(folders: Sequence[str] = PACKAGES) -> dict[str, list[str]]:
    """Public classes at the top of two modules or more, with the files."""
    places = defaultdict(list)
    for folder in folders:
        for path, _, tree in modules(folder):
            for node in tree.body:
                if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                    places[node.name].append(path)
    return {name: paths for name, paths in sorted(places.items()) if len(paths) > 1}


def main() -> None:
    for folder in (*PACKAGES, TESTS):
        print(f"{folder}: {len(modules(folder))} files, {num_lines(folder):,} lines")
    print(f"packages together: {sum(len(modules(folder)) for folder in PACKAGES)} files")
    everything = (*PACKAGES, TESTS)
    _show(f"files above {MAX_FILE_LINES} lines", long_files(everything))
    _show(f"functions above {MAX_FUNCTION_LINES} lines", long_functions(everything))
    _show("homonyms", [f"{name}: {', '.join(paths)}" for name, paths in homonyms().items()])


def _show(title: str, found: Sequence[str]) -> None:
    print(f"{title}: {len(found)}")
    for one in found:
        print(f"  {one}")


if __name__ == "__main__":
    main()
