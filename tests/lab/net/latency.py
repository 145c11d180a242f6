"""Measures netlab's links with a latency: round trips of small packets, and what TCP carries; root needed.

    python tests/lab/net/latency.py

Two hosts, 20 ms asked for. The processes that ping run before others (`chrt`), so that a busy machine is not
measured.
"""

from __future__ import annotations

import statistics
import sys

from test_latency import MS, PING

from thinwire_lab.net.netlab import Netlab

SECONDS, PINGS = 8, 100
# Host 0 sends argv[1] bytes; host 1 prints the Mbit/s of the last three quarters.
BULK = """
import os, socket, sys, time
whole = int(sys.argv[1])
if os.environ["RANK"] == "1":
    peer, got, first = socket.create_server(("", 6001)).accept()[0], 0, 0
    while part := peer.recv(1 << 20):
        got += len(part)
        if not first and got > whole / 4:
            first, begin = got, time.perf_counter()
    print(8e-6 * (got - first) / (time.perf_counter() - begin))
else:
    while True:
        try:
            peer = socket.create_connection(("10.77.0.2", 6001))
            break
        except OSError:  # not listening yet
            time.sleep(0.1)
    for _ in range(whole >> 16):
        peer.sendall(bytes(1 << 16))
"""


def lines_of(lab: Netlab, command: list[str]) -> list[str]:
    """What the hosts print."""
    lines: list[str] = []
    lab.run(command, timeout=300, stream=lambda _, line: lines.append(line))
    return lines


def main() -> None:
    for mbit in (10, 50, 100):
        with Netlab(hosts=2, rate=f"{mbit}mbit", latency=f"{MS:.0f}ms") as lab:
            trips = lines_of(lab, ["chrt", "-r", "1", sys.executable, "-c", PING, str(PINGS)])
            rate = lines_of(lab, [sys.executable, "-c", BULK, str(SECONDS * mbit * 125_000)])[0]
        low, median, high = statistics.quantiles(map(float, trips))
        print(f"{mbit} Mbit/s: {median:.1f} ms ({low:.1f}-{high:.1f}), TCP {float(rate):.1f} Mbit/s")


if __name__ == "__main__":
    main()
