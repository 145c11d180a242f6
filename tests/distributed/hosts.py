"""Fork servers on the hosts of a netlab: teams whose ranks have a network between them that can be cut."""

from __future__ import annotations

import contextlib
from typing import Any

from launch import Server

from thinwire_lab.net.netlab import Netlab


class HostServers(Server):
    """One fork server a host; rank r of a team lives on host r, or with others on host r // per_host."""

    def __init__(self, hosts: int, rate: str = "1gbit", per_host: int = 1) -> None:
        self.lab, self._per_host = Netlab(hosts, rate), per_host
        self._exit = contextlib.ExitStack()
        self._homes: dict[int, Server] = {}

    def __enter__(self) -> HostServers:
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.lab)
            self._servers = [
                stack.enter_context(HostServer(self.lab, rank)) for rank in range(len(self.lab.addresses))
            ]
            self._exit = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exit.close()

    def fork(self, **spec: Any) -> int:
        server = self._servers[spec["rank"] // self._per_host]
        pid = server.fork(host=self.lab.addresses[0], **spec)
        self._homes[pid] = server
        return pid

    def poll(self, pid: int) -> int | None:
        return self._homes[pid].poll(pid)


class HostServer(Server):
    def __init__(self, lab: Netlab, rank: int) -> None:
        self._lab, self._rank = lab, rank

    def popen(self, argv: list[str], **options: Any) -> Any:
        return self._lab.popen(self._rank, argv, **options)
