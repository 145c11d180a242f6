"""A lab with a latency: round trips, rates, refusals, and that its forwarder ends with it."""

from __future__ import annotations

import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from thinwire.errors import LabError
from thinwire_lab.net.fabric import parse_latency
from thinwire_lab.net.netlab import Netlab, available
from thinwire_lab.net.network import open_network

OBSTACLE = available()
needs_netlab = pytest.mark.skipif(OBSTACLE is not None, reason=f"netlab cannot run here: {OBSTACLE}")
MS = 20.0
# On a busy machine; pytest ends a lab behind any test of the file.
pytestmark = pytest.mark.filterwarnings("ignore:netlab's forwarder was late")

# Host 1 answers, host 0 prints the milliseconds of argv[1] round trips.
PING = """
import os, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
sock.bind(("", 6000))
count = int(sys.argv[1])
if os.environ["RANK"] == "1":
    while (asked := sock.recvfrom(100))[0] != b"end":
        sock.sendto(*asked)
else:
    sock.settimeout(0.5)
    while count:
        begin = time.perf_counter()
        sock.sendto(b"%d" % count, ("10.77.0.2", 6000))
        try:
            while sock.recv(100) != b"%d" % count:
                pass
            print(1e3 * (time.perf_counter() - begin))
            count -= 1
            time.sleep(0.01)
        except TimeoutError:  # not listening yet
            pass
    sock.settimeout(None)
    sock.sendto(b"end", ("10.77.0.2", 6000))
"""
# Sends packets of 1,400 bytes at argv[1] bits a second to the other host, until it is killed.
FLOOD = """
import os, socket, sys, time
sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
peer, gap = f"10.77.0.{2 - int(os.environ['RANK'])}", 8 * 1442 / float(sys.argv[1])
due = time.perf_counter()
while True:
    sock.sendto(bytes(1400), (peer, 7000))
    due += gap
    time.sleep(max(0.0, due - time.perf_counter()))
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Netlab]:
    with Netlab(hosts=2, rate="100mbit", latency=f"{MS:.0f}ms") as made:
        yield made


def round_trips(lab: Netlab, count: int) -> list[float]:
    lines: list[str] = []
    lab.run([sys.executable, "-c", PING, str(count)], timeout=300, stream=lambda _, line: lines.append(line))
    return sorted(map(float, lines))


@needs_netlab
def test_no_packet_is_early_and_any_port_works(lab: Netlab) -> None:
    assert round_trips(lab, 10)[0] > MS - 1


@needs_netlab
@pytest.mark.timing
def test_a_round_trip_is_what_was_asked_for_also_beside_traffic(lab: Netlab) -> None:
    assert abs(statistics.median(round_trips(lab, 100)) - MS) < 2
    quiet: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    floods = [lab.popen(rank, [sys.executable, "-c", FLOOD, "90e6"], **quiet) for rank in range(2)]
    try:
        assert abs(statistics.median(round_trips(lab, 100)) - MS) < 2
    finally:
        for flood in floods:
            flood.kill()


@needs_netlab
def test_its_forwarder_ends_with_the_lab() -> None:
    with Netlab(hosts=1, rate="10mbit", latency="5ms") as lab:
        running = forwarders(lab)
        assert len(running) == 1
    assert not any(Path(f"/proc/{pid}").exists() for pid in running)


def forwarders(lab: Netlab) -> list[int]:
    """The processes in the namespace of a lab's switch."""
    found = subprocess.run(["ip", "netns", "pids", lab._switch], capture_output=True, text=True, check=True)
    return [int(pid) for pid in found.stdout.split()]


@needs_netlab
def test_more_than_the_forwarder_carries_is_refused() -> None:
    with Netlab(hosts=5, rate="1gbit"):
        pass  # without latency nobody minds
    with (
        pytest.raises(
            LabError, match=r"cannot delay 5 hosts of 1,000 Mbit/s.* up to 800mbit, or fewer hosts"
        ),
        Netlab(hosts=5, rate="1gbit", latency="20ms"),
    ):
        pass


@pytest.mark.parametrize("latency", ["20", "0ms", "0.5ms", "2s", "ms", "-1ms"])
def test_a_wrong_latency_is_refused(latency: str) -> None:
    with pytest.raises(
        LabError, match=f'latency "{latency}" cannot be made: write a round trip of 1ms to 1s'
    ):
        parse_latency(latency)


@pytest.mark.parametrize(("rate", "choice"), [(None, "auto"), ("1gbit", "emulated"), (None, "virtual")])
def test_latency_needs_netlab(rate: str | None, choice: str) -> None:
    with (
        pytest.raises(LabError, match="a latency of 20ms needs hosts that netlab makes"),
        open_network(rate, 2, choice, latency="20ms"),
    ):
        pass
