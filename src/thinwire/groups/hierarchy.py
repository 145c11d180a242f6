"""A hierarchy: which ranks share a node, and which of them speak for it to the other nodes."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

import torch
from torch import Tensor

from thinwire.errors import PlanError
from thinwire.groups.base import Done, FailureReport, Group, Pending

HOST_BYTES = 16


def host_id() -> bytes:
    """HOST_BYTES bytes: of the host's name, its boot, and the network namespace (a container has its own)."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # where there is no /proc the name must do
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        facts.append(str(os.stat("/proc/self/ns/net").st_ino))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=HOST_BYTES).digest()


class NotALeader(Group):
    """Stands for rank `rank` of `size`, which another process is.

    What is only compared is found equal; that gradients are sent from here is a fault.
    """

    def __init__(self, whole: Group, rank: int, size: int) -> None:
        self._whole, self.rank, self.size = whole, rank, size

    def all_gather(self, send: Tensor, receive: Tensor) -> Pending:
        receive[:] = send
        return Done()

    def all_reduce(self, tensor: Tensor) -> Pending:
        raise self._fault("all_reduce")

    def all_reduce_max(self, words: Tensor) -> Pending:
        raise self._fault("all_reduce_max")

    def all_to_all(self, send: Tensor, receive: Tensor) -> Pending:
        raise self._fault("all_to_all")

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        return self._whole.report_failure(failure)

    def abort(self) -> None:
        self._whole.abort()

    def close(self) -> None:
        """The whole is closed by itself."""

    def _fault(self, act: str) -> AssertionError:
        return AssertionError(f"{act} on a rank that leads no node: leaders alone exchange between nodes")


OFF, AUTO = "off", "auto"
_WHERE_EQUAL = -1  # a wish: "auto", but only where it fits
_LEAST = 4  # two nodes of two ranks
_MAGIC = b"thinwire"
_PEER_INFO = struct.Struct(
    f"8sq{HOST_BYTES}s"
)  # as long as the digest of a plan, which who is "off" sends instead
_WAY_OUT = 'start equally many workers on every host, one host after the other, or pass hierarchy="off"'


@dataclass(frozen=True)
class Hierarchy:
    """Nodes of `per_node` ranks, one behind the other; the first rank of a node leads it. 1: all lead.

    >>> from thinwire.groups.thread import ThreadGroup
    >>> [Hierarchy(group, 2).leads for group in ThreadGroup.make(4)]
    [True, False, True, False]
    """

    group: Group
    per_node: int = 1

    @property
    def num_nodes(self) -> int:
        return self.group.size // self.per_node

    @property
    def number(self) -> int:
        """Of this rank's node."""
        return self.group.rank // self.per_node

    @property
    def place(self) -> int:
        """Of this rank in its node; 0 leads."""
        return self.group.rank % self.per_node

    @property
    def leads(self) -> bool:
        return self.place == 0

    def node(self) -> Group:
        """The ranks of this node; collective among them."""
        first = self.number * self.per_node
        return self.group.part(range(first, first + self.per_node), inside=True)

    def leaders(self) -> Group:
        """The leaders of all nodes; collective among them. Others only listen."""
        if self.per_node == 1:
            return self.group
        if not self.leads:
            return NotALeader(self.group, self.number, self.num_nodes)
        return self.group.part(range(0, self.group.size, self.per_node))


def settle(
    group: Group, wish: str | int | None, device: torch.device, host: bytes | None = None
) -> Hierarchy:
    """The hierarchy that a user wishes for: "off", "auto", or how many ranks a node has.

    None is "auto" where hosts have equally many ranks that follow each other, else "off": nothing is refused.

    1. what is wrong in itself is refused
    2. all ranks gather what was wished, and on which host each is: all go on, or all raise the same error
    3. "auto" takes hosts as nodes; a number must not put ranks of two hosts into one node
    """
    per_node = _number(wish, group.size)
    if per_node == 1:
        return Hierarchy(group)
    group.connect()
    wishes, hosts = _gathered(group, per_node, host_id() if host is None else host, device)
    others = [rank for rank, theirs in enumerate(wishes) if theirs != wishes[0]]
    if others:
        raise PlanError(
            f"ranks disagree on hierarchy: rank {group.global_rank(0)} asked for {_text(wishes[0])}, rank "
            f"{group.global_rank(others[0])} for {_text(wishes[others[0]])}; pass the same on every rank"
        )
    if per_node == _WHERE_EQUAL:
        return Hierarchy(group, _where_equal(hosts, group))
    return Hierarchy(group, _by_host(hosts, group) if per_node == 0 else _checked(per_node, hosts, group))


def _number(wish: str | int | None, size: int) -> int:
    """Ranks in a node; 0 for "auto", -1 for "auto" where hosts are equally large."""
    if wish is None:
        return _WHERE_EQUAL if size >= _LEAST else 1
    if wish == OFF:
        return 1
    if wish == AUTO:
        return 0
    if not isinstance(wish, int) or isinstance(wish, bool) or wish < 1:
        raise PlanError(
            f'hierarchy={wish!r} is neither "auto", "off" nor a number of workers in a node: pass one of them'
        )
    if wish > 1 and (size % wish or size == wish):
        why = "all would be one node" if size == wish else "the last node would have fewer"
        raise PlanError(
            f"hierarchy={wish} does not fit {size} workers, {why}: pass a number that divides {size} into "
            'two nodes or more, or "off"'
        )
    return wish


def _gathered(
    group: Group, per_node: int, host: bytes, device: torch.device
) -> tuple[list[int | None], list[bytes]]:
    """What every rank wishes (None: it has not asked for a hierarchy), and where it is."""
    peer_info = _PEER_INFO.pack(_MAGIC, per_node, host)
    mine = torch.frombuffer(bytearray(peer_info), dtype=torch.uint8).to(device)
    peer_infos = mine.new_empty(group.size, mine.numel())
    group.all_gather(mine, peer_infos).wait()
    read = [_PEER_INFO.unpack(bytes(row)) for row in peer_infos.tolist()]
    return [number if magic == _MAGIC else None for magic, number, _ in read], [
        peer_info[2] for peer_info in read
    ]


def _by_host(hosts: Sequence[bytes], group: Group) -> int:
    """Ranks on each host; 1 if there is one host only, where nothing travels between nodes."""
    runs = [(host, len(list(ranks))) for host, ranks in groupby(hosts)]
    if len(runs) == 1:
        return 1
    if len({host for host, _ in runs}) < len(runs):
        raise PlanError(
            f'hierarchy="auto": the ranks of a host must follow each other, and do not; {_WAY_OUT}'
        )
    first, count = 0, runs[0][1]
    for _, other in runs:
        if other != count:
            raise PlanError(
                f'hierarchy="auto": the host of rank {group.global_rank(0)} has {count} workers, that of '
                f"rank {group.global_rank(first)} has {other}; {_WAY_OUT}"
            )
        first += other
    return count


def _where_equal(hosts: Sequence[bytes], group: Group) -> int:
    try:
        return _by_host(hosts, group)
    except PlanError:
        return 1


def _checked(per_node: int, hosts: Sequence[bytes], group: Group) -> int:
    for first in range(0, len(hosts), per_node):
        if len(set(hosts[first : first + per_node])) > 1:
            raise PlanError(
                f"hierarchy={per_node}: rank {group.global_rank(first)} to "
                f"{group.global_rank(first + per_node - 1)} are on several hosts, raw sums would cross the "
                'network; pass "auto"'
            )
    return per_node


def _text(wish: int | None) -> str:
    named = {None: '"off"', 0: '"auto"', _WHERE_EQUAL: 'what codec="auto" takes by itself'}
    return named.get(wish, str(wish))
