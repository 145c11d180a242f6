"""The shortlist: what the forecast finds worth a trial."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from thinwire.auto.choice import Choice
from thinwire.auto.qualities import DENSE

TRIES = 3  # choices that are tried
HOPELESS = 1.15  # times the forecast of plain DDP: beyond that nothing is tried


def shortlist(forecast_s: Mapping[str, float]) -> tuple[str, ...]:
    """The quickest few, the best first; the best of either way (all workers, or by nodes) is among them.

    Forecasts compare codecs better than ways: both ways get a trial if both are within reach of plain DDP.

    >>> shortlist({"dense": 5, "a": 1, "b": 2, "c": 3, "a by nodes": 4, "b by nodes": 6})
    ('a', 'b', 'a by nodes')
    """
    hopeful = [text for text, s in forecast_s.items() if text != DENSE and s < HOPELESS * forecast_s[DENSE]]
    ranked = sorted(hopeful, key=lambda text: forecast_s[text])
    leading = _first_of(ranked, by_nodes=False) + _first_of(ranked, by_nodes=True)
    others = [text for text in ranked if text not in leading]
    return tuple(sorted(leading + others[: TRIES - len(leading)], key=lambda text: forecast_s[text]))


def _first_of(ranked: Sequence[str], by_nodes: bool) -> list[str]:
    return [text for text in ranked if Choice.of(text).by_nodes == by_nodes][:1]
