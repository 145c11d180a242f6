"""Links, topologies and collectives: alpha-beta algebra and its limits."""

from __future__ import annotations

import math

import pytest

from thinwire.errors import LabError
from thinwire.perf import collectives
from thinwire.perf.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_MAX,
    ALL_TO_ALL,
    ORDERED,
    SMALL_BYTES,
    Collective,
)
from thinwire.perf.link import LINKS, TCP_SHARE, LinkModel, Topology, link_named

WIRE = LinkModel("wire", 1e-3, 1e6)
BUS = LinkModel("bus", 1e-5, 1e9)


def flat(workers: int, link: LinkModel = WIRE) -> Topology:
    return Topology(workers, 1, link, BUS)


def test_a_message_takes_latency_and_its_bytes() -> None:
    assert WIRE.message(5000) == pytest.approx(6e-3)
    assert WIRE.straight(0, 0) == 0
    assert LinkModel("w", 1e-3, 1e6, 1e-4).straight(11, 5000) == pytest.approx(1e-3 + 10 * 1e-4 + 5e-3)


def test_a_rate_is_ethernet_behind_its_headers() -> None:
    assert link_named("1gbit").bytes_per_s == pytest.approx(TCP_SHARE * 125e6)
    assert link_named("10gbit:latency=20us").latency_s == pytest.approx(20e-6)
    assert link_named(" IB100 ").name == "ib100"
    assert all(link.source for link in LINKS.values())


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("1gigabit", 'there is no link "1gigabit": write a rate such as 1gbit'),
        ("pcei", 'did you mean "pcie"'),
        ("0gbit", 'there is no link "0gbit"'),
        ("1gbit:speed=2", "only latency= is known"),
        ("1gbit:latency=soon", "latency=soon is no time"),
    ],
)
def test_links_that_are_none(text: str, sentence: str) -> None:
    with pytest.raises(LabError, match=sentence):
        link_named(text)


@pytest.mark.parametrize("wrong", [{"bytes_per_s": 0.0}, {"latency_s": -1.0}, {"message_s": math.inf}])
def test_numbers_that_are_no_link(wrong: dict[str, float]) -> None:
    with pytest.raises(LabError, match="link x"):
        LinkModel(**{"name": "x", "latency_s": 0.0, "bytes_per_s": 1.0, **wrong})  # type: ignore[arg-type]


@pytest.mark.parametrize(("nodes", "gpus"), [(0, 4), (4, 0), (-1, 1)])
def test_a_cluster_has_a_worker(nodes: int, gpus: int) -> None:
    with pytest.raises(LabError, match="at least one node with one GPU"):
        Topology(nodes, gpus, WIRE, BUS)


def test_ring_all_reduce() -> None:
    p, n = 5, 1e6
    assert collectives.all_reduce(flat(p), n) == pytest.approx(2 * (p - 1) * 1e-3 + 2 * (p - 1) / p * n / 1e6)


def test_all_gather_grows_with_the_workers() -> None:
    assert collectives.all_gather(flat(9), 1000) == pytest.approx(8 * (1e-3 + 1e-3))


def test_all_to_all_is_one_hop() -> None:
    assert collectives.all_to_all(flat(4), 8000) == pytest.approx(1e-3 + 6e-3)


def two_phase(topology: Topology, nbytes: float, sum_bytes: float) -> float:
    """Shards to their owners, then every owner's sums to everybody."""
    return collectives.all_to_all(topology, nbytes) + collectives.all_gather(topology, sum_bytes)


def test_two_phase_of_equal_sizes_moves_what_a_ring_moves() -> None:
    """Without latency: (p-1)/p n there, as much back."""
    fast = LinkModel("no latency", 0.0, 1e6)
    p, n = 8, 64_000.0
    assert two_phase(flat(p, fast), n, n / p) == pytest.approx(collectives.all_reduce(flat(p, fast), n))


def test_nothing_takes_no_time_among_one() -> None:
    for kind in (ALL_REDUCE, ALL_TO_ALL, ALL_GATHER, ALL_REDUCE_MAX, ORDERED):
        assert collectives.seconds(flat(1), Collective(kind, 10**9)) == 0
        assert collectives.sent_bytes(Collective(kind, 10**6), 1) == 0
    assert collectives.broadcast(flat(1), 1e9) == 0


def test_infinite_bandwidth_leaves_latency_alone() -> None:
    link = LinkModel("latency only", 1e-3, math.inf)
    assert collectives.all_reduce(flat(5, link), 1e12) == pytest.approx(8e-3)
    assert collectives.all_gather(flat(5, link), 1e12) == pytest.approx(4e-3)
    assert collectives.all_to_all(flat(5, link), 1e12) == pytest.approx(1e-3)


def test_workers_of_a_node_share_its_connection() -> None:
    """A ring passes it once; an all-to-all loads it with what all of them send."""
    slow = LinkModel("slow", 0.0, 1e6)
    bus = LinkModel("bus", 0.0, math.inf)
    together, apart = Topology(4, 4, slow, bus), Topology(16, 1, slow, bus)
    assert collectives.all_reduce(together, 1e6) == pytest.approx(collectives.all_reduce(apart, 1e6))
    assert collectives.all_to_all(together, 1e6) == pytest.approx(4 * 12 / 16)
    assert collectives.all_to_all(apart, 1e6) == pytest.approx(15 / 16)


def test_the_inside_of_a_hierarchy_has_two_legs() -> None:
    cluster = Topology(4, 4, WIRE, BUS)
    inside = cluster.inside
    there, back = (collectives.seconds(inside, call) for call in collectives.inside_calls(1_000_000))
    assert there == pytest.approx(two_phase(inside, 1e6, 1e6 / 4))
    assert back == pytest.approx(collectives.broadcast(inside, 1e6))
    assert inside.workers == 4
    assert cluster.leaders.workers == 4


def test_short_messages_go_straight() -> None:
    """As groups do: one hop instead of a walk around the ring."""
    many = flat(100)
    short = collectives.seconds(many, Collective(ALL_GATHER, SMALL_BYTES))
    assert short == pytest.approx(1e-3 + 99 * SMALL_BYTES / 1e6)
    assert (
        collectives.seconds(many, Collective(ALL_GATHER, SMALL_BYTES + 8))
        > 99 * 1e-3 + 99 * SMALL_BYTES / 1e6
    )


def test_bytes_are_counted_as_groups_count_them() -> None:
    from thinwire.groups import base
    from thinwire.groups.collectives import ordered_bytes

    assert SMALL_BYTES == base.SMALL_BYTES
    for p in (2, 3, 7, 100):
        for n in (8, 840, 16384, 16392, 8_400_000):
            assert collectives.sent_bytes(Collective(ALL_REDUCE, n), p) == base.all_reduce_bytes(n, p)
            assert collectives.sent_bytes(Collective(ALL_REDUCE_MAX, n), p) == base.all_reduce_max_bytes(n, p)
            assert collectives.sent_bytes(Collective(ALL_GATHER, n), p) == base.all_gather_bytes(n, p)
            assert collectives.sent_bytes(Collective(ALL_TO_ALL, n * p), p) == base.all_to_all_bytes(n * p, p)
            assert collectives.sent_bytes(Collective(ORDERED, n), p) == ordered_bytes(n // 4, p)
