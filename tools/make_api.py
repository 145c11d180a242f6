"""Writes docs/reference/api.md: every public name with its signature and its docstring.

    make docs                              # writes the page
    python tools/make_api.py --check       # fails if the page is out of date

Public are the names in `__all__` of the packages below and, of a class, every member without a leading
underscore that thinwire itself defines.
"""

from __future__ import annotations

import argparse
import ast
import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any

from thinwire.deprecated import FormerAttribute

PACKAGES = ("thinwire", "thinwire.optim", "thinwire_private")
PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "api.md"
HEAD = """# API reference

<!-- Made by `make docs` from the docstrings: change those, not this page. -->

What is not on this page is not public and may change without notice. Members that a class inherits from
another class of this page are described there. Public too are `thinwire.lightning.Compression`, `compress`
of `thinwire.accelerate` and `thinwire.transformers`, and `thinwire.ray.prepare_model`:
[front ends](../how-to/front-ends.md).

[Codecs](codecs.md) lists the names of codecs, [schedules](../how-to/schedules.md) those of schedules.
"""
WIDTH = 90  # of arguments on one line
PROPERTIES = (property, cached_property)


@dataclass(frozen=True)
class Entry:
    """A public name: a function, a class, or a member of one."""

    name: str
    thing: Any
    depth: int  # of its heading

    @property
    def doc(self) -> str:
        """Its own docstring, without the signature that dataclasses generate."""
        doc = inspect.getdoc(_function(self.thing)) or ""
        return "" if inspect.isclass(self.thing) and doc.startswith(f"{self.thing.__name__}(") else doc

    @property
    def signature(self) -> str:
        """As one would call it."""
        return self.name.rpartition(".")[2] + _signature(self.thing)

    def lines(self) -> Iterator[str]:
        kind = (
            "property"
            if isinstance(self.thing, property)
            else "class"
            if inspect.isclass(self.thing)
            else "def"
        )
        yield f"{'#' * self.depth} `{self.name}`"
        yield ""
        if not isinstance(self.thing, PROPERTIES):
            yield from ("```python", *f"{kind} {self.signature}".splitlines(), "```", "")
        yield from fenced(self.doc)
        if inspect.isclass(self.thing) and issubclass(self.thing, Enum):
            yield from ("", f"One of {', '.join(f'`{value.name}`' for value in self.thing)}.")
        yield ""


def entries(package: str) -> Iterator[Entry]:
    """Everything public in a package, each class followed by its members."""
    module = importlib.import_module(package)
    found = {name: getattr(module, name) for name in sorted(module.__all__)}
    public = {name: thing for name, thing in found.items() if not inspect.ismodule(thing)}
    for name, thing in public.items():
        yield Entry(f"{package}.{name}", thing, 3)
        if inspect.isclass(thing):
            bases = [base for base in thing.__mro__[1:] if base in public.values()]
            yield from (Entry(f"{name}.{member}", found, 4) for member, found in members(thing, bases))


def members(cls: type, bases: Iterable[type] = ()) -> Iterator[tuple[str, Any]]:
    """Public methods and properties that thinwire defines.

    What a class inherits from `bases`, which are on the page themselves, is described there, unless the class
    has its own docstring for it.
    """
    told = {name: found for base in reversed(list(bases)) for name, found in members(base)}
    for name in sorted(dir(cls)):
        found = inspect.getattr_static(cls, name)
        function = _function(found)
        if isinstance(found, FormerAttribute):
            continue
        if name.startswith("_") or not (inspect.isroutine(function) or isinstance(found, PROPERTIES)):
            continue
        if name in told and (found is told[name] or not function.__doc__):
            continue
        if (getattr(function, "__module__", None) or "").startswith("thinwire"):
            yield name, found


def fenced(doc: str) -> Iterator[str]:
    """A docstring as Markdown: examples become blocks of code."""
    inside = False
    for line in doc.splitlines():
        example = line.lstrip().startswith((">>>", "...")) or (inside and line.strip() != "")
        if example and not inside:
            yield "```python"
        elif inside and not example:
            yield "```"
        inside = example
        line = re.sub(r"\s*# doctest: \+SKIP", "", line)
        formula = not inside and "`" not in line and not line.startswith("    ")
        yield re.sub(r"(?<=\w)\*(?=\w)", r"\*", line) if formula else line  # c*sigma is no emphasis
    if inside:
        yield "```"


def page() -> str:
    """The whole page."""
    lines = [HEAD]
    for package in PACKAGES:
        lines += [f"## {package}", ""]
        lines += [line for entry in entries(package) for line in entry.lines()]
    return "\n".join(lines).rstrip() + "\n"


def undocumented() -> list[str]:
    """Public names without a docstring."""
    return [entry.name for package in PACKAGES for entry in entries(package) if not entry.doc.strip()]


def _function(thing: Any) -> Any:
    """The function inside of a property or of a static or class method."""
    if isinstance(thing, classmethod | staticmethod):
        return thing.__func__
    if isinstance(thing, property):
        return thing.fget
    return thing.func if isinstance(thing, cached_property) else thing


def _signature(thing: Any) -> str:
    """As in the source. For a class: its constructor; for an exception or an enum: its base."""
    if not inspect.isclass(thing):
        return _written(_function(thing))
    if issubclass(thing, BaseException | Enum):
        return f"({thing.__mro__[1].__name__})"
    if is_dataclass(thing):
        return _fields(thing)
    return _written(thing.__init__).removesuffix(" -> None") if inspect.isfunction(thing.__init__) else ""


def _written(function: Any) -> str:
    """The arguments of a function, without self, and what it returns."""
    node = ast.parse(textwrap.dedent(inspect.getsource(function))).body[0]
    assert isinstance(node, ast.FunctionDef)
    first = (node.args.posonlyargs or node.args.args)[:1]
    if first and first[0].arg in ("self", "cls"):
        (node.args.posonlyargs or node.args.args).pop(0)
    returns = "" if node.returns is None else f" -> {ast.unparse(node.returns)}"
    return _folded(_split(ast.unparse(node.args)), returns)


def _fields(cls: type) -> str:
    """The arguments of a dataclass."""
    parts = []
    for parameter in inspect.signature(cls).parameters.values():
        kind, default = parameter.annotation, repr(parameter.default)
        text = f"{parameter.name}: {kind if isinstance(kind, str) else inspect.formatannotation(kind)}"
        shown = default if len(default) < 40 and "<" not in default else "..."
        parts.append(text if parameter.default is parameter.empty else f"{text}={shown}")
    return _folded(parts, "")


def _split(arguments: str) -> list[str]:
    """At the commas between arguments, not at those inside of them."""
    depth, parts = 0, [""]
    for letter in arguments:
        depth += (letter in "([{") - (letter in ")]}")
        if letter == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += letter
    return [part.strip() for part in parts if part.strip()]


def _folded(arguments: list[str], returns: str) -> str:
    """On one line, or one argument a line; quotes and spaces as the formatter has them."""
    pretty = [re.sub(r"^(\w+: [^=]*[^= ])=", r"\1 = ", a).replace("'", '"') for a in arguments]
    line = f"({', '.join(pretty)}){returns}"
    if len(line) <= WIDTH:
        return line
    return "(\n" + "".join(f"    {argument},\n" for argument in pretty) + f"){returns}"


def main() -> None:
    parser = argparse.ArgumentParser(description="Write docs/reference/api.md from the docstrings.")
    parser.add_argument("--check", action="store_true", help="write nothing; fail if the page is out of date")
    if parser.parse_args().check:
        if PAGE.read_text() != page():
            sys.exit("docs/reference/api.md is out of date: run `make docs`")
    else:
        PAGE.write_text(page())


if __name__ == "__main__":
    main()
