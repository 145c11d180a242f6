"""Words: how numbers of things are said."""

from __future__ import annotations


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "worker"), counted(1200, "step")
    ('1 worker', '1,200 steps')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
