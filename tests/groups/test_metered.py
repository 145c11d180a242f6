"""The meter: bytes and calls by act, as the formulas of the collectives say."""

from __future__ import annotations

import pytest
import torch

from thinwire.groups.base import (
    SMALL_BYTES,
    all_gather_bytes,
    all_reduce_bytes,
    all_reduce_max_bytes,
    all_to_all_bytes,
)
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.groups.wrappers import Metered


@pytest.mark.parametrize("size", [1, 2, 3, 4, 8])
def test_bytes_and_calls_of_every_act(size: int) -> None:
    def work(group: ThreadGroup) -> Metered:
        meter = Metered(group)
        meter.all_reduce(torch.zeros(24 * size)).wait()
        meter.all_reduce_max(torch.zeros(10, dtype=torch.int32)).wait()
        meter.all_reduce_max(torch.zeros(SMALL_BYTES, dtype=torch.int32)).wait()
        rows = torch.zeros(size, 7, dtype=torch.uint8)
        meter.all_to_all(rows, torch.empty_like(rows)).wait()
        meter.all_gather(torch.zeros(11, dtype=torch.uint8), torch.zeros(size, 11, dtype=torch.uint8)).wait()
        meter.all_gather(torch.zeros(11, dtype=torch.uint8), torch.zeros(size, 11, dtype=torch.uint8)).wait()
        return meter

    peers = size - 1
    for meter in run_ranks(size, work):
        assert meter.bytes["all_reduce"] == 2 * peers * 24 * 4
        assert meter.bytes["all_reduce_max"] == peers * 40 + 2 * peers * 4 * SMALL_BYTES // size
        assert meter.bytes["all_to_all"] == peers * 7
        assert meter.bytes["all_gather"] == 2 * peers * 11
        assert meter.calls == {"all_reduce": 1, "all_reduce_max": 2, "all_to_all": 1, "all_gather": 2}
        assert meter.total_bytes == sum(meter.bytes.values())
        assert (meter.rank, meter.size) == (meter.inner.rank, size)


def test_the_formulas() -> None:
    """Sent by one rank; all ranks together receive what all ranks together send."""
    assert all_reduce_bytes(1000, 1) == 0
    assert all_reduce_bytes(1000, 2) == 1000
    assert all_reduce_bytes(1000, 4) == 1500
    assert all_reduce_max_bytes(SMALL_BYTES, 4) == 3 * SMALL_BYTES
    assert all_reduce_max_bytes(SMALL_BYTES + 4, 4) == 3 * (SMALL_BYTES + 4) // 2
    assert all_to_all_bytes(1000, 4) == 750
    assert all_gather_bytes(1000, 4) == 3000


def test_confess_abort_and_close_are_handed_on() -> None:
    from thinwire.groups.base import FailureReport

    groups = ThreadGroup.make(2)
    failure = FailureReport("travel", "why", False)
    assert Metered(groups[0]).report_failure(failure) == {0: failure}
    assert groups[1].report_failure(failure) == {0: failure, 1: failure}
    Metered(groups[1]).close()
    Metered(groups[1]).abort()
