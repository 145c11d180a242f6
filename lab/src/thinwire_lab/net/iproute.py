"""The door to `ip` and `tc`: shapes of links, counters of interfaces, and the removal of namespaces."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire.texts import parse_rate

WAY_OUT = "or slow thinwire's own exchange instead: tw.compress(..., link=tw.Link(rate=...))"
MIN_RATE_BITS = 1e4  # slower, one full packet would take more than a second
MAX_RATE_BITS = 1e11  # beyond any machine's memory; from about 10 gbit on the processor is the limit
# The bucket: what may leave at once. TCP hands over segments of up to 64 kB; one that the bucket cannot hold
# is cut into packets in software (a bucket of 32 kB at 1 gbit: four times the processor time, and 10 to 25 %
# of the rate lost). So it holds a segment, but at slow rates no more than 2.5 ms of sending, and at fast ones
# what leaves while the kernel's timer sleeps.
SEGMENT_BYTES, MAX_BURST_S, TIMER_S, MIN_BUCKET_BYTES = 70_000, 2.5e-3, 0.6e-3, 4_096
# A segment counts with the headers of all its packets: one of this share of the bucket fits into it.
SHARE_OF_BUCKET = 0.9
# A queue that an all-to-all does not overflow: senders of one rate fill it only when their aims coincide.
QUEUE_S, MIN_QUEUE_BYTES = 20e-3, 1_000_000
HEADER_BYTES = 66  # Ethernet 14, IPv4 20, TCP with time stamps 32: what a packet costs beside its payload
NAMESPACES = Path("/var/run/netns")
HOST_FILES = Path("/etc/netns")  # `ip netns exec NAME` shows HOST_FILES/NAME/hosts as /etc/hosts
PATIENCE_S = 30.0
# Waits for a line or for the end of its input (the owner is gone); then, for the namespaces it was given,
# 1. kills every process in them; 2. deletes the links (`ip netns del` alone returns before they are gone);
# 3. deletes the namespaces and their files.
SCRIPT = f"""
read -r _
for name; do
  tries=0
  while pids=$(ip netns pids "$name") && [ -n "$pids" ] && [ "$tries" -lt 100 ]; do
    kill -9 $pids; sleep 0.02; tries=$((tries + 1))
  done
done
for name; do
  ip -n "$name" link del eth0
  ip netns del "$name"
  rm -f "{HOST_FILES}/$name/hosts"; rmdir "{HOST_FILES}/$name"
done
exit 0
"""


def check_machine() -> None:
    """Raise LabError unless this is Linux, `ip` and `tc` are there and we are root."""
    if sys.platform != "linux":
        raise LabError(
            f"netlab needs network namespaces of Linux, this is {sys.platform}: use Linux, {WAY_OUT}"
        )
    for tool in ("ip", "tc"):
        find_tool(tool)
    if os.geteuid() != 0:
        raise LabError(f"netlab needs root to make hosts and shape their links: run it with sudo, {WAY_OUT}")


def search_path() -> str:
    """PATH, and the folders of system tools that an ordinary user's PATH may lack."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find_tool(tool: str) -> str:
    """The full path of `ip` or `tc`."""
    path = shutil.which(tool, path=search_path())
    if path is None:
        raise LabError(
            f"netlab needs the program `{tool}`: install iproute2 (apt install iproute2), {WAY_OUT}"
        )
    return path


def run_tool(tool: str, *arguments: str) -> str:
    """Run `ip` or `tc` and give what it printed."""
    command = [find_tool(tool), *arguments]
    # In a session of its own: Ctrl-C reaches us, not a half-done change of the network.
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise LabError(
            f"`{tool} {' '.join(arguments)}` was refused ({said}): netlab needs root with CAP_NET_ADMIN and "
            f"CAP_SYS_ADMIN (a container: --privileged), {WAY_OUT}"
        )
    return done.stdout


@dataclass(frozen=True)
class LinkShape:
    """One direction of a link: `rate_bits` per second leave a bucket that may send `bucket_bytes` at once."""

    rate_bits: float
    round_trip_s: float = 0.0  # how much longer than the machine's own; made by the switch's fabric

    @classmethod
    def parse(cls, rate: str, round_trip_s: float = 0.0) -> LinkShape:
        """The shape of a link of this rate, "1gbit" for example."""
        bits = parse_rate(rate)
        if not MIN_RATE_BITS <= bits <= MAX_RATE_BITS:
            raise LabError(f'rate "{rate}" cannot be shaped by netlab: choose 10kbit to 100gbit')
        return cls(bits, round_trip_s)

    @property
    def bucket_bytes(self) -> int:
        per_second = self.rate_bits / 8
        return int(max(MIN_BUCKET_BYTES, min(SEGMENT_BYTES, MAX_BURST_S * per_second), TIMER_S * per_second))

    @property
    def queue_bytes(self) -> int:
        """At least what is under way in a round trip: TCP halves its window after a loss."""
        return max(MIN_QUEUE_BYTES, int(self.rate_bits / 8 * max(QUEUE_S, self.round_trip_s)))

    @property
    def segment_bytes(self) -> int:
        """TCP's largest segment that the bucket holds, so that it need not be cut into packets."""
        return min(65_536, int(SHARE_OF_BUCKET * self.bucket_bytes))

    def apply(self, namespace: str, interface: str, parent: str = "root") -> None:
        """Shapes what leaves `interface`; a shape that it already has is changed in place."""
        place = ("root",) if parent == "root" else ("parent", parent)
        run_tool(
            "tc", "-n", namespace, "qdisc", "replace", "dev", interface, *place, "tbf",
            "rate", f"{self.rate_bits:.0f}bit",
            "burst", str(self.bucket_bytes), "limit", str(self.queue_bytes),
        )  # fmt: skip


@dataclass(frozen=True)
class InterfaceCounters:
    """What an interface sent (tx) and received (rx) since it was made; subtract two readings for what passed.

    The kernel may count a large TCP segment as one packet with one header. Bytes and packets agree on that,
    so tx_payload_bytes is right either way.
    """

    tx_bytes: int
    tx_packets: int
    rx_bytes: int
    rx_packets: int

    def __sub__(self, earlier: InterfaceCounters) -> InterfaceCounters:
        return InterfaceCounters(
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


def read_counters(interface: str | None = None) -> InterfaceCounters:
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


def counters_of(namespace: str, interface: str) -> InterfaceCounters:
    """The counters of an interface in another namespace."""
    stats = json.loads(run_tool("ip", "-n", namespace, "-s", "-j", "link", "show", "dev", interface))[0][
        "stats64"
    ]
    tx, rx = stats["tx"], stats["rx"]
    return InterfaceCounters(tx["bytes"], tx["packets"], rx["bytes"], rx["packets"])


def _parse_net_dev(text: str) -> dict[str, InterfaceCounters]:
    """The table in /proc/net/dev: two heading lines, then `name: rx bytes, packets, 6 more, tx bytes ...`."""
    found = {}
    for line in text.splitlines()[2:]:
        name, numbers = line.split(":")
        column = [int(number) for number in numbers.split()]
        found[name.strip()] = InterfaceCounters(column[8], column[9], column[0], column[1])
    return found


class Janitor:
    """Removes these namespaces when told to by `finish`, or when this process dies."""

    def __init__(self, namespaces: list[str]) -> None:
        self._namespaces = namespaces
        self._process = _start(namespaces)

    def finish(self) -> None:
        """Clean up now, and wait until it is done, also if Ctrl-C comes meanwhile."""
        try:
            self._process.communicate(b"\n", timeout=PATIENCE_S)
        except (KeyboardInterrupt, SystemExit):
            self._process.wait(PATIENCE_S)
            raise
        except subprocess.TimeoutExpired:
            raise LabError(
                f"the lab was not removed within {PATIENCE_S:.0f} s: see `ip netns list`, "
                "and run `thinwire netlab --clean` when this process has ended"
            ) from None
        if self._process.returncode != 0:  # somebody killed it
            _clean(self._namespaces)


def lab_prefix() -> str:
    """The prefix of the namespaces of a new lab. It names the owner, so that a stale lab is recognised."""
    return f"thinwire-{os.getpid()}-{_start_time(os.getpid())}-{secrets.token_hex(2)}"


def sweep() -> list[str]:
    """Remove the labs whose owner is dead, and give the names of their namespaces."""
    check_machine()
    folders = [folder for folder in (NAMESPACES, HOST_FILES) if folder.is_dir()]
    stale = sorted({path.name for folder in folders for path in folder.iterdir() if _is_stale(path.name)})
    _clean(stale)
    return stale


def _is_stale(name: str) -> bool:
    match = re.fullmatch(r"thinwire-(\d+)-(\d+)-[0-9a-f]{4}-\w+", name)
    # Compared with the start time too, since process numbers are used again.
    return match is not None and _start_time(int(match[1])) != int(match[2])


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _start(namespaces: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", SCRIPT, "thinwire-janitor", *namespaces],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "PATH": search_path()},
        start_new_session=True,  # Ctrl-C and a closed terminal do not reach it
    )


def _clean(namespaces: list[str]) -> None:
    if namespaces:
        _start(namespaces).communicate(b"\n", timeout=PATIENCE_S)
