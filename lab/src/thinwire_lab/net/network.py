"""The network of a run: hosts with shaped links where netlab can run, else processes over loopback."""

from __future__ import annotations

import os
import subprocess
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from thinwire.errors import LabError
from thinwire.texts import parse_rate

if TYPE_CHECKING:
    from thinwire_lab.net.netlab import Netlab

AUTO, NETLAB, EMULATED, LOOPBACK = "auto", "netlab", "emulated", "loopback"
VIRTUAL = "virtual"
CHOICES = (AUTO, NETLAB, EMULATED, LOOPBACK, VIRTUAL)
# What thinwire runs in place of PyTorch's exchange where only thinwire's own group can be slowed down.
STAND_INS = {"ddp": "dense", "ddp-fp16": "fp16"}

PIPES: Mapping[str, Any] = {
    "stdin": subprocess.PIPE,  # never written: its end tells a worker that the launcher is gone
    "stdout": subprocess.PIPE,
    "stderr": subprocess.STDOUT,
}


class LabNetwork(ABC):
    """Starts workers somewhere, and knows what that place can measure."""

    @property
    @abstractmethod
    def kind(self) -> str:
        """The name of this kind of network."""

    @property
    @abstractmethod
    def counters(self) -> bool:
        """Whether bytes come from interface counters."""

    @property
    @abstractmethod
    def emulated_rate(self) -> str | None:
        """The rate of the link that thinwire's own group has to emulate, if any."""

    @property
    def latency(self) -> str | None:
        """The round trip that was asked for; None: the machine's own."""
        return None

    @abstractmethod
    def popen(self, rank: int, argv: Sequence[str], workers: int) -> subprocess.Popen[bytes]:
        """Start one worker in a process group of its own."""

    @abstractmethod
    def note(self) -> str:
        """One sentence about how the network was made, printed with every result."""

    def codec(self, codec: str) -> str:
        """The exchange that is really run when the user asks for `codec`."""
        return codec

    def processes(self, workers: int) -> int:
        """The number of processes for `workers` workers."""
        return workers


@dataclass(frozen=True)
class Loopback(LabNetwork):
    """Processes on this machine at full speed, or slowed by thinwire's emulated link."""

    rate: str | None
    why: str = ""  # no netlab

    @property
    def kind(self) -> str:
        return LOOPBACK if self.rate is None else EMULATED

    @property
    def counters(self) -> bool:
        return False

    @property
    def emulated_rate(self) -> str | None:
        return self.rate

    def popen(self, rank: int, argv: Sequence[str], workers: int) -> subprocess.Popen[bytes]:
        env = self.environment(rank, workers)
        return subprocess.Popen(argv, env=env, start_new_session=True, **PIPES)

    def environment(self, rank: int, workers: int) -> dict[str, str]:
        """What a worker finds set."""
        interface = "lo0" if sys.platform == "darwin" else "lo"
        own = {"RANK": str(rank), "WORLD_SIZE": str(workers), "LOCAL_RANK": str(rank)}
        return {**os.environ, **own, "GLOO_SOCKET_IFNAME": interface, "OMP_NUM_THREADS": "1"}

    def note(self) -> str:
        if self.rate is None:
            return "processes over loopback, no link emulated (give --rate for a slow link)"
        reason = f" because {self.why}" if self.why else ""
        return (
            f"an emulated {self.rate} link inside thinwire's group{reason}; PyTorch's own exchange cannot be "
            'slowed this way, so "ddp" is run as thinwire\'s "dense"'
        )

    def codec(self, codec: str) -> str:
        if self.rate is None and codec.startswith("ddp-powersgd"):
            raise LabError(
                "the bytes of ddp-powersgd are only known from netlab's counters: run as root with --rate"
            )
        if self.rate is not None and codec.startswith("ddp-powersgd"):
            raise LabError(
                "ddp-powersgd cannot be slowed by an emulated link: run as root, so that netlab is used"
            )
        return codec if self.rate is None else STAND_INS.get(codec, codec)


@dataclass(frozen=True)
class Virtual(LabNetwork):
    """All workers in one process: no link, but the same bytes, and as many workers as memory holds."""

    @property
    def kind(self) -> str:
        return VIRTUAL

    @property
    def counters(self) -> bool:
        return False

    @property
    def emulated_rate(self) -> str | None:
        return None

    def popen(self, rank: int, argv: Sequence[str], workers: int) -> subprocess.Popen[bytes]:
        return Loopback(None).popen(rank, argv, workers)

    def note(self) -> str:
        return (
            "virtual workers in one process (times say nothing of a network); PyTorch's own exchange needs "
            'processes, so "ddp" is run as thinwire\'s "dense"'
        )

    def codec(self, codec: str) -> str:
        if codec.startswith("ddp-powersgd"):
            raise LabError("ddp-powersgd needs processes: take another network than virtual")
        return STAND_INS.get(codec, codec)

    def processes(self, workers: int) -> int:
        return 1


@dataclass(frozen=True)
class Hosts(LabNetwork):
    """Hosts made by netlab: network namespaces whose links the kernel shapes."""

    lab: Netlab
    rate: str
    per_host: int = 1  # workers; those of a host follow each other
    round_trip: str | None = None

    @property
    def kind(self) -> str:
        return NETLAB

    @property
    def latency(self) -> str | None:
        return self.round_trip

    @property
    def counters(self) -> bool:
        return True

    @property
    def emulated_rate(self) -> str | None:
        return None

    def popen(self, rank: int, argv: Sequence[str], workers: int) -> subprocess.Popen[bytes]:
        host, place = divmod(rank, self.per_host)
        own = {"RANK": rank, "WORLD_SIZE": workers, "LOCAL_RANK": place, "LOCAL_WORLD_SIZE": self.per_host}
        env = {"OMP_NUM_THREADS": "1", **{name: str(value) for name, value in own.items()}}
        process: subprocess.Popen[bytes] = self.lab.popen(host, list(argv), env=env, **PIPES)
        return process

    def note(self) -> str:
        trip = "" if self.round_trip is None else f"; a round trip takes {self.round_trip}"
        return (
            f"netlab hosts (network namespaces); the kernel shapes every link to {self.rate} both ways{trip}"
        )


@contextmanager
def open_network(
    rate: str | None, workers: int, choice: str = AUTO, per_host: int = 1, latency: str | None = None
) -> Iterator[LabNetwork]:
    """The network for runs of `workers` workers: netlab if it can run, an emulated link otherwise.

    Several workers per host and latency need netlab.
    """
    if choice not in CHOICES:
        raise LabError(f"unknown network {choice!r}: choose one of {', '.join(CHOICES)}")
    if rate is None and choice in (NETLAB, EMULATED):
        raise LabError(f"network {choice!r} needs a rate: add for example --rate 100mbit")
    if per_host > 1 and (rate is None or choice not in (AUTO, NETLAB)):
        raise LabError(
            f"{per_host} workers a host need hosts that netlab makes: give a rate, and no other network"
        )
    if latency is not None and (rate is None or choice not in (AUTO, NETLAB)):
        raise LabError(
            f"a latency of {latency} needs hosts that netlab makes: give a rate, and no other network"
        )
    if choice == VIRTUAL:
        if rate is not None:
            raise LabError(f"network {choice!r} has no links: leave out --rate, or take another network")
        yield Virtual()
        return
    if rate is None or choice == LOOPBACK:
        yield Loopback(None)
        return
    from thinwire_lab.net.netlab import Netlab, available

    parse_rate(rate)  # a wrong rate is refused here, not by every worker
    obstacle = available() if choice == AUTO and per_host == 1 and latency is None else None
    if choice == EMULATED or obstacle is not None:
        yield Loopback(rate, (obstacle or "").rstrip("."))
        return
    with Netlab(hosts=workers // per_host, rate=rate, latency=latency) as lab:
        yield Hosts(lab, rate, per_host, latency)
