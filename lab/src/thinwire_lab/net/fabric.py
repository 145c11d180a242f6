"""Fabric: how a lab's switch joins its ports, at once or after a delay (netem, or a forwarder of our own)."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import warnings
from abc import ABC, abstractmethod
from collections.abc import Sequence

from thinwire.errors import LabError
from thinwire_lab.net.forwarder import Tally
from thinwire_lab.net.iproute import LinkShape, find_tool, run_tool

MIN_S, MAX_S = 1e-3, 1.0
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0}
# What the forwarder was seen to hand on, all hosts together, on two cores: 4 hosts at 1 gbit, none late.
MAX_FORWARDED_BITS = 4e9
LATE_SHARE = 0.01
NETEM_PARENT = "1:1"
PATIENCE_S = 30.0


def parse_latency(text: str) -> float:
    """Seconds of a round trip.

    >>> parse_latency("20ms"), parse_latency("1.5 ms")
    (0.02, 0.0015)
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s)\s*", text)
    seconds = float(match[1]) * UNITS[match[2]] if match else math.nan
    if not MIN_S <= seconds <= MAX_S:
        raise LabError(f'latency "{text}" cannot be made: write a round trip of 1ms to 1s, such as "20ms"')
    return seconds


class Fabric(ABC):
    """Joins the ports of a switch; with a latency every packet spends half of a round trip in it."""

    @abstractmethod
    def connect(self, switch: str, ports: Sequence[str]) -> None:
        """Join the ports of the namespace `switch`."""

    @abstractmethod
    def shape(self, shape: LinkShape, switch: str, host: str, port: str, interface: str) -> None:
        """Give a host's link its rate in both directions."""

    @abstractmethod
    def check(self, shape: LinkShape, hosts: int) -> None:
        """Raise LabError if it cannot carry so many links of this rate."""

    @abstractmethod
    def close(self) -> None:
        """Ends what `connect` started; the lab's namespaces are removed by others."""


class Bridge(Fabric):
    """No delay: a bridge of the kernel."""

    def connect(self, switch: str, ports: Sequence[str]) -> None:
        run_tool("ip", "-n", switch, "link", "add", "bridge", "up", "type", "bridge", "mcast_snooping", "0")
        for port in ports:
            run_tool("ip", "-n", switch, "link", "set", port, "master", "bridge", "up")

    def shape(self, shape: LinkShape, switch: str, host: str, port: str, interface: str) -> None:
        shape.apply(host, interface)
        shape.apply(switch, port)

    def check(self, shape: LinkShape, hosts: int) -> None:
        """The kernel carries what the processor can."""

    def close(self) -> None:
        """Nothing was started."""


class NetemBridge(Bridge):
    """netem before the token bucket of every port. Not run by us: no kernel at hand had it."""

    def shape(self, shape: LinkShape, switch: str, host: str, port: str, interface: str) -> None:
        shape.apply(host, interface)
        packets = 2 * (shape.queue_bytes // 1_000 + 1)
        run_tool(
            "tc", "-n", switch, "qdisc", "replace", "dev", port, "root", "handle", "1:", "netem",
            "delay", f"{1e6 * shape.round_trip_s / 2:.0f}us", "limit", str(packets),
        )  # fmt: skip
        shape.apply(switch, port, NETEM_PARENT)


class Forwarding(Fabric):
    """A process of ours hands packets on between the ports (`forwarder`); token buckets stay the kernel's."""

    def __init__(self, round_trip_s: float) -> None:
        self._delay_s = round_trip_s / 2
        self._process: subprocess.Popen[str] | None = None

    def connect(self, switch: str, ports: Sequence[str]) -> None:
        for port in ports:
            run_tool("ip", "-n", switch, "link", "set", port, "up")
        words = [find_tool("ip"), "netns", "exec", switch, sys.executable, "-m", "thinwire_lab.net.forwarder"]
        self._process = subprocess.Popen(
            [*words, str(self._delay_s), *ports],
            stdin=subprocess.PIPE,  # its end tells the forwarder that this process is gone
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != "ready\n":
            raise LabError("the forwarder of netlab did not start: see what it said above")

    def shape(self, shape: LinkShape, switch: str, host: str, port: str, interface: str) -> None:
        shape.apply(host, interface)
        shape.apply(switch, port)
        # A segment that the bucket cannot hold is cut into packets, and each costs the forwarder two calls.
        run_tool("ip", "-n", host, "link", "set", interface, "gso_max_size", str(shape.segment_bytes))

    def check(self, shape: LinkShape, hosts: int) -> None:
        if hosts * shape.rate_bits > MAX_FORWARDED_BITS:
            raise LabError(
                f"netlab cannot delay {hosts} hosts of {shape.rate_bits / 1e6:,.0f} Mbit/s: this kernel has "
                f"no netem, and netlab's own forwarder carries {MAX_FORWARDED_BITS / 1e9:.0f} Gbit/s in all: "
                f"choose a rate up to {MAX_FORWARDED_BITS / hosts / 1e6:.0f}mbit, or fewer hosts"
            )

    def close(self) -> None:
        if self._process is None:
            return
        try:
            said, _ = self._process.communicate(timeout=PATIENCE_S)
        except subprocess.TimeoutExpired:
            self._process.kill()  # it may be stopped
            said, _ = self._process.communicate()
        tally = Tally(**json.loads(said)) if said else Tally()
        if tally.late > LATE_SHARE * tally.frames or tally.lost:
            warnings.warn(
                f"netlab's forwarder was late with {tally.late:,} of {tally.frames:,} packets and lost "
                f"{tally.lost:,}: the machine was too busy for this rate, so times are too long",
                stacklevel=2,
            )


def fabric(round_trip_s: float, switch: str) -> Fabric:
    """The fabric for this latency, in the namespace `switch`."""
    if not round_trip_s:
        return Bridge()
    return NetemBridge() if has_netem(switch) else Forwarding(round_trip_s)


def has_netem(switch: str) -> bool:
    """Whether the kernel can delay packets, found out on the loopback device of a namespace."""
    try:
        run_tool("tc", "-n", switch, "qdisc", "replace", "dev", "lo", "root", "netem", "delay", "1ms")
    except LabError:
        return False
    run_tool("tc", "-n", switch, "qdisc", "del", "dev", "lo", "root")
    return True
