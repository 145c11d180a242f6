"""Counters: the bytes and packets that the kernel saw pass an interface."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.net.iproute import run_tool

HEADER_BYTES = 66  # Ethernet 14, IPv4 20, TCP with time stamps 32: what a packet costs beside its payload


@dataclass(frozen=True)
class Counters:
    """What an interface sent (tx) and received (rx) since it was made; subtract two readings for what passed.

    The kernel may count a large TCP segment as one packet with one header. Bytes and packets agree on that,
    so tx_payload_bytes is right either way.
    """

    tx_bytes: int
    tx_packets: int
    rx_bytes: int
    rx_packets: int

    def __sub__(self, earlier: Counters) -> Counters:
        return Counters(
            self.tx_bytes - earlier.tx_bytes,
            self.tx_packets - earlier.tx_packets,
            self.rx_bytes - earlier.rx_bytes,
            self.rx_packets - earlier.rx_packets,
        )

    @property
    def tx_payload_bytes(self) -> int:
        """Bytes sent without the headers of TCP/IP and Ethernet."""
        return self.tx_bytes - HEADER_BYTES * self.tx_packets

    @property
    def rx_payload_bytes(self) -> int:
        """Bytes received without the headers of TCP/IP and Ethernet."""
        return self.rx_bytes - HEADER_BYTES * self.rx_packets


def read_counters(interface: str | None = None) -> Counters:
    """The counters of an interface of this process's own host, by default its only one beside loopback."""
    every = _parse_net_dev(Path("/proc/self/net/dev").read_text())
    names = [name for name in every if name != "lo"]
    if interface is None and len(names) == 1:
        interface = names[0]
    if interface is None or interface not in every:
        problem = (
            "which interface is meant is unclear" if interface is None else f"no interface {interface!r}"
        )
        raise LabError(f"{problem} on this host: name one of {', '.join(every)}")
    return every[interface]


def counters_of(namespace: str, interface: str) -> Counters:
    """The counters of an interface in another namespace."""
    stats = json.loads(run_tool("ip", "-n", namespace, "-s", "-j", "link", "show", "dev", interface))[0][
        "stats64"
    ]
    tx, rx = stats["tx"], stats["rx"]
    return Counters(tx["bytes"], tx["packets"], rx["bytes"], rx["packets"])


def _parse_net_dev(text: str) -> dict[str, Counters]:
    """The table in /proc/net/dev: two heading lines, then `name: rx bytes, packets, 6 more, tx bytes ...`."""
    found = {}
    for line in text.splitlines()[2:]:
        name, numbers = line.split(":")
        column = [int(number) for number in numbers.split()]
        found[name.strip()] = Counters(column[8], column[9], column[0], column[1])
    return found
