"""Who shares a node: read from hosts or given as a number, the same on all ranks, or refused on all."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

from thinwire.errors import PeerError, PlanError
from thinwire.groups.base import Group, broadcast_bytes
from thinwire.groups.hierarchy import HOST_BYTES, Hierarchy, host_id, settle
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.groups.wrappers import Emulated, Link, Metered

CPU = torch.device("cpu")
Wish = str | int | None


def settled(hosts: str, wish: Wish = "auto", odd: Sequence[Wish] = ()) -> list[int]:
    """Workers in a node, on every rank; a letter is a rank's host, `odd` what the last ranks wish."""

    def work(group: ThreadGroup) -> int:
        wishes = [wish] * (group.size - len(odd)) + list(odd)
        host = hosts[group.rank].encode() * HOST_BYTES
        return settle(group, wishes[group.rank], CPU, host).per_node

    return run_ranks(len(hosts), work, timeout_s=300.0)


def refusals(hosts: str, wish: Wish = "auto", odd: Sequence[Wish] = ()) -> set[str]:
    """What the ranks are told; every one of them must be."""

    def work(group: ThreadGroup) -> str:
        wishes = [wish] * (group.size - len(odd)) + list(odd)
        with pytest.raises(PlanError) as caught:
            settle(group, wishes[group.rank], CPU, hosts[group.rank].encode() * HOST_BYTES)
        return str(caught.value)

    return set(run_ranks(len(hosts), work, timeout_s=300.0))


@pytest.mark.parametrize(
    ("hosts", "per_node"), [("aabb", 2), ("aaabbbccc", 3), ("aaaa", 1), ("abc", 1), ("a", 1)]
)
def test_auto_takes_hosts_as_nodes(hosts: str, per_node: int) -> None:
    assert settled(hosts) == [per_node] * len(hosts)


@pytest.mark.parametrize(
    ("hosts", "per_node"), [("aabb", 2), ("aaaa", 1), ("abcd", 1), ("aab", 1), ("aaab", 1), ("abab", 1)]
)
def test_no_wish_takes_hosts_as_nodes_where_they_are_equal_and_refuses_nothing(
    hosts: str, per_node: int
) -> None:
    assert settled(hosts, None) == [per_node] * len(hosts)


def test_who_has_no_wish_beside_others_who_have_is_named() -> None:
    (told,) = refusals("aabb", "auto", odd=[None])
    assert 'rank 0 asked for "auto", rank 3 for what codec="auto" takes by itself' in told


def test_a_number_is_taken_where_no_node_lies_on_two_hosts() -> None:
    assert settled("aaaabbbb", 2) == [2] * 8
    assert settled("aaaa", "off") == [1] * 4
    assert settled("abab", 1) == [1] * 4


@pytest.mark.parametrize(
    ("hosts", "wish", "said"),
    [
        ("aaab", "auto", "the host of rank 0 has 3 workers, that of rank 3 has 1; start equally many"),
        ("abab", "auto", "the ranks of a host must follow each other"),
        ("aabb", 4, "hierarchy=4 does not fit 4 workers, all would be one node"),
        ("aabb", 3, "hierarchy=3 does not fit 4 workers, the last node would have fewer"),
        ("aabb", 0, "hierarchy=0 is neither"),
        ("aabb", True, "hierarchy=True is neither"),
        ("aabb", "on", "hierarchy='on' is neither"),
        ("abbb", 2, 'rank 0 to 1 are on several hosts, raw sums would cross the network; pass "auto"'),
    ],
)
def test_what_does_not_fit_is_refused_on_all_ranks_alike(hosts: str, wish: str | int, said: str) -> None:
    (told,) = refusals(hosts, wish)
    assert said in told


def test_ranks_that_wish_for_different_things_are_named() -> None:
    (told,) = refusals("aabb", "auto", odd=[2])
    assert 'rank 0 asked for "auto", rank 3 for 2' in told


def test_the_host_has_one_identity() -> None:
    assert host_id() == host_id()
    assert len(host_id()) == HOST_BYTES


def test_nodes_and_leaders_are_groups_that_know_the_ranks_of_the_whole() -> None:
    def work(group: ThreadGroup) -> tuple[list[int], list[int], float]:
        hierarchy = Hierarchy(group, 2)
        node, leaders = hierarchy.node(), hierarchy.leaders()
        mine = torch.tensor([float(group.rank)])
        node.all_reduce(mine).wait()
        if hierarchy.leads:
            leaders.all_reduce(mine).wait()
        node.broadcast(mine).wait()
        names = [leaders.global_rank(rank) for rank in range(leaders.size)] if hierarchy.leads else []
        return [node.global_rank(rank) for rank in range(node.size)], names, mine.item()

    assert run_ranks(4, work) == [
        ([0, 1], [0, 2], 6.0),
        ([0, 1], [], 6.0),
        ([2, 3], [0, 2], 6.0),
        ([2, 3], [], 6.0),
    ]


def test_who_leads_no_node_cannot_exchange() -> None:
    def work(group: ThreadGroup) -> None:
        leaders = Hierarchy(group, 2).leaders()
        if group.rank == 1:
            leaders.all_reduce(torch.zeros(1))

    with pytest.raises(AssertionError, match="leads no node"):
        run_ranks(2, work)


def test_a_part_fails_with_the_whole() -> None:
    def work(group: ThreadGroup) -> None:
        hierarchy = Hierarchy(group, 2)
        node = hierarchy.node()
        if group.rank == 3:
            node.abort()
            return
        node.all_reduce(torch.zeros(1)).wait()
        if hierarchy.leads:
            hierarchy.leaders().all_reduce(torch.zeros(1)).wait()
        node.all_reduce(torch.zeros(1)).wait()

    with pytest.raises(PeerError):
        run_ranks(4, work, timeout_s=300.0)


def test_a_link_is_between_nodes_only() -> None:
    link = Link("1mbit")
    group: Group = Emulated(ThreadGroup.make(4)[0], link)
    assert not isinstance(Hierarchy(group, 2).node(), Emulated)
    assert isinstance(Hierarchy(group, 2).leaders(), Emulated)


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13])
def test_a_broadcast_reaches_everybody_once(size: int) -> None:
    assert sum(broadcast_bytes(10, rank, size) for rank in range(size)) == 10 * (size - 1)


def test_a_broadcast_is_counted() -> None:
    def work(group: ThreadGroup) -> int:
        meter = Metered(group)
        meter.broadcast(torch.zeros(5)).wait()
        return meter.bytes["broadcast"]

    assert run_ranks(4, work) == [40, 20, 0, 0]
