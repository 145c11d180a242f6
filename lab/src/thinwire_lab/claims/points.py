"""Accuracies as text: differences in points, shares in percent."""

from __future__ import annotations

from thinwire_lab.spread import Spread


def points(difference: float) -> str:
    """
    >>> points(-0.0123)
    '-1.23'
    """
    return f"{100 * difference:+.2f}"


def points_spread(differences: Spread) -> str:
    """The mean and how far seeds lie apart.

    >>> points_spread(Spread.of([0.01, 0.02]))
    '+1.50 ± 0.71'
    """
    return f"{points(differences.mean)} ± {100 * differences.deviation:.2f}"
