"""The link between two workers is really measured."""

from __future__ import annotations

from forked_workers import forked_loopback
from thinwire_lab.net.link_speed import measure_link


@forked_loopback()
def test_the_link_is_measured() -> None:
    speed = measure_link()
    assert speed.latency_ms > 0
    assert speed.gbit_per_s > 0
    assert "2 workers" in str(speed)
