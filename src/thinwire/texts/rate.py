"""A link rate as people write it ("1gbit") and as the library computes with it (bits per second)."""

from __future__ import annotations

import math
import re

from thinwire.errors import LabError

UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


NO_LIMIT = "none"


def rate_or_none(text: str | None) -> str | None:
    """The rate that a user asked for, checked; None for "none": as fast as the machine is.

    >>> rate_or_none("none"), rate_or_none("1gbit")
    (None, '1gbit')
    """
    if text is None or text.strip().lower() == NO_LIMIT:
        return None
    parse_rate(text)
    return text


def parse_rate(text: str) -> float:
    """Bits per second of a text such as "1gbit", "1.5gbit", "100mbit" or "500kbit".

    Units are decimal, as on a network card: 1 kbit = 1000 bit.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?bit)(?:/s)?\s*", text, re.IGNORECASE)
    rate = float(match[1]) * UNITS[match[2].lower()] if match else math.nan
    if not 0 < rate < math.inf:
        raise LabError(
            f'rate "{text}" is not understood: write a number above 0 with kbit, mbit or gbit, like "100mbit"'
        )
    return rate


def show_rate(text: str) -> str:
    """A rate as it is read in a sentence.

    >>> show_rate("100mbit"), show_rate("1.5gbit"), show_rate("999kbit")
    ('100 Mbit/s', '1.5 Gbit/s', '999 kbit/s')
    """
    rate = parse_rate(text)
    unit = max((unit for unit in UNITS if UNITS[unit] <= rate), key=lambda unit: UNITS[unit], default="bit")
    prefix = unit.removesuffix("bit")
    return f"{rate / UNITS[unit]:g} {prefix if prefix == 'k' else prefix.upper()}bit/s"
