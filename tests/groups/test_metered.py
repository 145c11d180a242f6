"""The meter: bytes and calls by act, as the formulas of the collectives say."""

from __future__ import annotations

import pytest
import torch

from thinwire.groups.base import SMALL_BYTES, gather_bytes, max_bytes, sum_bytes, swap_bytes
from thinwire.groups.metered import Metered
from thinwire.groups.thread import ThreadGroup, run_ranks


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_bytes_and_calls_of_every_act(size: int) -> None:
    def work(group: ThreadGroup) -> Metered:
        meter = Metered(group)
        meter.sum_(torch.zeros(24 * size)).wait()
        meter.max_(torch.zeros(10, dtype=torch.int32)).wait()
        meter.max_(torch.zeros(SMALL_BYTES, dtype=torch.int32)).wait()
        rows = torch.zeros(size, 7, dtype=torch.uint8)
        meter.swap(rows, torch.empty_like(rows)).wait()
        meter.gather(torch.zeros(11, dtype=torch.uint8), torch.zeros(size, 11, dtype=torch.uint8)).wait()
        meter.gather(torch.zeros(11, dtype=torch.uint8), torch.zeros(size, 11, dtype=torch.uint8)).wait()
        return meter

    peers = size - 1
    for meter in run_ranks(size, work):
        assert meter.bytes["sum"] == 2 * peers * 24 * 4
        assert meter.bytes["max"] == peers * 40 + 2 * peers * 4 * SMALL_BYTES // size
        assert meter.bytes["swap"] == peers * 7
        assert meter.bytes["gather"] == 2 * peers * 11
        assert meter.calls == {"sum": 1, "max": 2, "swap": 1, "gather": 2}
        assert meter.total_bytes == sum(meter.bytes.values())
        assert (meter.rank, meter.size) == (meter.inner.rank, size)


def test_the_formulas() -> None:
    """Sent by one rank; all ranks together receive what all ranks together send."""
    assert sum_bytes(1000, 1) == 0
    assert sum_bytes(1000, 2) == 1000
    assert sum_bytes(1000, 4) == 1500
    assert max_bytes(SMALL_BYTES, 4) == 3 * SMALL_BYTES
    assert max_bytes(SMALL_BYTES + 4, 4) == 3 * (SMALL_BYTES + 4) // 2
    assert swap_bytes(1000, 4) == 750
    assert gather_bytes(1000, 4) == 3000


def test_confess_abort_and_close_are_handed_on() -> None:
    from thinwire.groups.base import Note

    groups = ThreadGroup.make(2)
    note = Note("travel", "why", False)
    assert Metered(groups[0]).confess(note) == {0: note}
    assert groups[1].confess(note) == {0: note, 1: note}
    Metered(groups[1]).close()
    Metered(groups[1]).abort()
