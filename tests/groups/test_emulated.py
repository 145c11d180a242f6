"""The emulated link: acts last as long as the link would take, and give what the inner group gives."""

from __future__ import annotations

import pytest
import torch

from own_time import OwnTime
from thinwire.errors import LabError
from thinwire.groups import wrappers as emulated
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.groups.wrappers import Emulated, Link


@pytest.fixture(autouse=True)
def time(monkeypatch: pytest.MonkeyPatch) -> OwnTime:
    own = OwnTime()
    monkeypatch.setattr(emulated, "time", own)
    return own


def timed(time: OwnTime, size: int, link: Link, act: str) -> list[float]:
    def work(group: ThreadGroup) -> float:
        slow = Emulated(group, link)
        start = time.monotonic()
        if act == "all_reduce":
            slow.all_reduce(torch.zeros(1250)).wait()
        elif act == "all_gather":
            slow.all_gather(
                torch.zeros(2500, dtype=torch.uint8), torch.zeros(size, 2500, dtype=torch.uint8)
            ).wait()
        elif act == "all_to_all":
            rows = torch.zeros(size, 2500, dtype=torch.uint8)
            slow.all_to_all(rows, torch.empty_like(rows)).wait()
        else:
            slow.all_reduce_max(torch.zeros(625, dtype=torch.int32)).wait()
        return time.monotonic() - start

    return run_ranks(size, work)


@pytest.mark.parametrize(
    ("act", "hops", "nbytes"),
    [("all_reduce", 4, 6666), ("all_reduce_max", 1, 5000), ("all_to_all", 1, 5000), ("all_gather", 2, 5000)],
)
def test_acts_last_as_long_as_the_link_takes(time: OwnTime, act: str, hops: int, nbytes: int) -> None:
    """3 ranks: hops * latency + 8 * bytes / rate."""
    expected = hops * 0.01 + 8 * nbytes / 1e6
    for seconds in timed(time, 3, Link("1mbit", latency_s=0.01), act):
        assert seconds == pytest.approx(expected, abs=1e-5)


def test_acts_under_way_share_the_link(time: OwnTime) -> None:
    """Two acts started one behind the other take twice as long, not once."""

    def work(group: ThreadGroup) -> float:
        slow = Emulated(group, Link("1mbit", latency_s=0.0))
        start = time.monotonic()
        buffers = [torch.zeros(2, 5000, dtype=torch.uint8) for _ in range(2)]
        pending = [slow.all_gather(torch.zeros(5000, dtype=torch.uint8), buffer) for buffer in buffers]
        started = time.monotonic() - start
        for act in pending:
            act.wait()
        assert started == 0  # starting waits for nothing
        return time.monotonic() - start

    for seconds in run_ranks(2, work):
        assert seconds == pytest.approx(0.08)


def test_one_rank_alone_does_not_wait(time: OwnTime) -> None:
    assert timed(time, 1, Link("1kbit", latency_s=10.0), "all_reduce") == [0.0]


def test_results_are_those_of_the_inner_group() -> None:
    def work(group: ThreadGroup) -> list[float]:
        x = torch.full((2,), float(group.rank))
        Emulated(group, Link("1gbit")).all_reduce(x).wait()
        return x.tolist()

    assert run_ranks(3, work) == [[3.0, 3.0]] * 3


def test_bad_rates() -> None:
    for rate in ("fast", "0mbit", "-1mbit", "10", ""):
        with pytest.raises(LabError, match=r"rate .* is not understood"):
            Emulated(ThreadGroup.make(1)[0], Link(rate))
