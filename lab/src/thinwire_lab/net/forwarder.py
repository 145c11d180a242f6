"""Forwarder: a switch that hands every frame on a fixed time later, for kernels without netem.

    python -m thinwire_lab.net.forwarder DELAY_S PORT...

It runs in the switch's namespace and reads and writes frames on its ports (packet sockets). It prints
"ready", and when its input ends one JSON line: how many frames it handed on, how many of them late, and how
many were lost because it was too slow to read them.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import statistics
import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass

# linux/if_packet.h, asm-generic/socket.h; Python names only a part of them
SOL_PACKET, PACKET_STATISTICS, PACKET_VNET_HDR, PACKET_IGNORE_OUTGOING = 263, 6, 15, 23
SO_SNDBUFFORCE, SO_RCVBUFFORCE = 32, 33
ETH_P_ALL = 3
BUFFER_BYTES = 64 << 20
# With a virtio header in front of each frame the kernel hands over segments of up to 64 kB as they are,
# checksums not yet computed: one call for 44 packets.
VNET_BYTES, MAX_FRAME_BYTES = 10, 10 + 14 + 65_535
DESTINATION = slice(VNET_BYTES, VNET_BYTES + 6)
SOURCE = slice(VNET_BYTES + 6, VNET_BYTES + 12)
BATCH = 8  # frames read from a port before others have their turn, and before due ones are sent
LATE_S = 1e-3
NAPS, NAP_S = 15, 2e-3


@dataclass
class Tally:
    """What a forwarder did."""

    frames: int = 0
    late: int = 0  # by more than a millisecond
    lost: int = 0  # not read in time


class Forwarder:
    """Reads frames of all ports and sends each, `delay_s` later, to the port where its destination was seen.

    The delay is the same for all, so frames wait in one queue and leave in the order in which they came.
    """

    def __init__(self, delay_s: float, ports: Sequence[str]) -> None:
        self._delay_s = delay_s
        self._ports = [_open(port) for port in ports]
        self._homes: dict[bytes, socket.socket] = {}  # the port behind which an address was seen
        self._waiting: deque[tuple[float, socket.socket, bytes]] = deque()
        self._buffer = memoryview(bytearray(MAX_FRAME_BYTES))
        self.tally = Tally()

    def run(self, until: int) -> None:
        """Forwards until the file descriptor `until` can be read (its writer is gone)."""
        watched: list[socket.socket | int] = [until, *self._ports]
        while True:
            rest = max(0.0, self._waiting[0][0] - time.monotonic()) if self._waiting else None
            readable, _, _ = select.select(watched, (), (), rest)
            for port in readable:
                if isinstance(port, int):
                    return
                self._read(port)
            self._send()

    def _read(self, port: socket.socket) -> None:
        due = time.monotonic() + self._delay_s
        with contextlib.suppress(OSError):  # no frame left, or the port's cable is pulled out
            for _ in range(BATCH):
                frame = bytes(self._buffer[: port.recv_into(self._buffer)])
                self._homes[frame[SOURCE]] = port
                self._waiting.append((due, port, frame))

    def _send(self) -> None:
        waiting, now = self._waiting, time.monotonic()
        while waiting and waiting[0][0] <= now:
            due, source, frame = waiting.popleft()
            home = self._homes.get(frame[DESTINATION])
            for port in (home,) if home is not None else self._ports:
                if port is not source:
                    with contextlib.suppress(OSError):  # its queue is full: lost, as in any switch
                        port.send(frame)
            self.tally.frames += 1
            self.tally.late += now - due > LATE_S

    def close(self) -> Tally:
        """The counts; ports are closed."""
        for port in self._ports:
            seen = port.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8)
            self.tally.lost += int.from_bytes(seen[4:8], sys.byteorder)
            port.close()
        return self.tally


def _open(port: str) -> socket.socket:
    opened = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
    opened.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
    opened.setsockopt(SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
    opened.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, BUFFER_BYTES)
    opened.setsockopt(socket.SOL_SOCKET, SO_SNDBUFFORCE, BUFFER_BYTES)
    opened.bind((port, ETH_P_ALL))
    opened.setblocking(False)
    return opened


def timer_lag_s() -> float:
    """By how much the kernel wakes a process up too late, the median of some naps."""
    lags = []
    for _ in range(NAPS):
        begin = time.monotonic()
        select.select((), (), (), NAP_S)
        lags.append(time.monotonic() - begin - NAP_S)
    return statistics.median(lags)


def main() -> None:
    """The command of the module's first lines."""
    delay_s, ports = float(sys.argv[1]), sys.argv[2:]
    with contextlib.suppress(
        OSError
    ):  # before processes that train, so that a busy machine does not delay it
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    forwarder = Forwarder(max(0.0, delay_s - timer_lag_s()), ports)
    print("ready", flush=True)
    forwarder.run(sys.stdin.fileno())
    print(json.dumps(asdict(forwarder.close())), flush=True)


if __name__ == "__main__":
    main()
