"""Frameworks that front ends need: whether they are installed, and new enough."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version


def require(front_end: str, **least: str) -> None:
    """Raises ImportError unless these packages are there in these versions or newer.

    >>> require("thinwire.example", torch="1.0")
    """
    for package, wanted in least.items():
        extra = "[train]" if package == "ray" else ""
        way = f'pip install "{package}{extra}>={wanted}"'
        try:
            found = version(package)
        except PackageNotFoundError:
            raise ImportError(f"{front_end} needs {package} {wanted} or newer: {way}") from None
        if _numbers(found) < _numbers(wanted):
            raise ImportError(f"{front_end} needs {package} {wanted} or newer, here is {found}: {way}")


def _numbers(text: str) -> tuple[int, ...]:
    """Major and minor."""
    return tuple(int("".join(filter(str.isdigit, part)) or 0) for part in text.split(".")[:2])
