"""Netlab: N hosts on one machine, as network namespaces joined by a switch, each link shaped both ways."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any

from thinwire.errors import LabError
from thinwire_lab.net.fabric import Bridge, Fabric, fabric, parse_latency
from thinwire_lab.net.iproute import (
    HOST_FILES,
    InterfaceCounters,
    Janitor,
    LinkShape,
    check_machine,
    counters_of,
    find_tool,
    lab_prefix,
    run_tool,
)
from thinwire_lab.process import Ending, ProcessFailed, Supervisor, stop

MAX_HOSTS = 250
INTERFACE = "eth0"  # every host has one, in its own namespace
MASTER_PORT, RENDEZVOUS_PORT = 29500, 29400  # a lab's ports are its own, none can be taken

Stream = Callable[[int, str], None]

# No IPv6 chatter in the counters, and the same TCP on every machine: reno is in every kernel and allowed in
# every namespace. (bbr, the default of some machines, was 4 % slower and less even at 100 mbit.)
NAMESPACE_SETUP = """
cd /proc/sys/net
echo reno > ipv4/tcp_congestion_control
if [ -e ipv6/conf/default/disable_ipv6 ]; then echo 1 > ipv6/conf/default/disable_ipv6; fi
"""


class Netlab:
    """A cluster that exists inside its `with` block.

    1. a switch: a bridge in a namespace of its own, so that the machine's network is not touched; with a
       latency it keeps every packet for half of the round trip (`fabric`);
    2. per host a namespace, a veth pair to the switch, and a token bucket (tc tbf) at either end, so that
       both directions have the rate;
    3. however the block ends (also by Ctrl-C or a kill), processes, links and namespaces are removed.

    Without a latency a round trip is that of the machine, some 0.1 ms.

    >>> with Netlab(hosts=4, rate="100mbit", latency="20ms") as lab:                     # doctest: +SKIP
    ...     lab.run(["python", "train.py"], stream=lambda rank, line: print(rank, line))
    ...     print(lab.counters(0).tx_payload_bytes)
    """

    def __init__(self, hosts: int, rate: str, latency: str | None = None) -> None:
        if not 1 <= hosts <= MAX_HOSTS:
            raise LabError(f"netlab cannot make {hosts} hosts: ask for 1 to {MAX_HOSTS}")
        self._round_trip_s = 0.0 if latency is None else parse_latency(latency)
        self._shape = LinkShape.parse(rate, self._round_trip_s)
        self.link = f"rate: {rate}" + ("" if latency is None else f", round trip: {latency}")
        check_machine()
        prefix = lab_prefix()
        self._switch = f"{prefix}-switch"
        self._hosts = [f"{prefix}-h{rank}" for rank in range(hosts)]
        self._processes: list[subprocess.Popen[Any]] = []
        self._fabric: Fabric = Bridge()
        self._exit = contextlib.ExitStack()

    @property
    def addresses(self) -> list[str]:
        """The address of every host, by rank."""
        return [f"10.77.0.{rank + 1}" for rank in range(len(self._hosts))]

    def __enter__(self) -> Netlab:
        with contextlib.ExitStack() as stack:
            stack.enter_context(_stoppable())
            stack.callback(Janitor([*self._hosts, self._switch]).finish)
            stack.callback(lambda: self._fabric.close())
            stack.callback(lambda: stop(self._processes))
            self._build()
            self._exit = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.close()

    def set_rate(self, rate: str) -> None:
        """Change the rate of all links, also while a command runs."""
        shape = LinkShape.parse(rate, self._round_trip_s)
        self._fabric.check(shape, len(self._hosts))
        self._shape = shape
        for rank in range(len(self._hosts)):
            self._shape_link(rank)

    def plug(self, rank: int, connected: bool) -> None:
        """Pull a host's cable out of the switch, or put it back, also while a command runs."""
        self._host(rank)  # checks
        run_tool("ip", "-n", self._switch, "link", "set", f"port{rank}", "up" if connected else "down")

    def counters(self, rank: int) -> InterfaceCounters:
        """What the interface of a host has sent and received since the lab was made."""
        return counters_of(self._host(rank), INTERFACE)

    def popen(
        self, rank: int, argv: Sequence[str], env: Mapping[str, str] | None = None, **options: Any
    ) -> subprocess.Popen[Any]:
        """Start a command on one host, in a session of its own; `options` go to subprocess.Popen."""
        command = [find_tool("ip"), "netns", "exec", self._host(rank), *argv]
        environment = {**self._environment(rank), **(env or {})}
        process = subprocess.Popen(command, env=environment, start_new_session=True, **options)
        self._processes = [*(one for one in self._processes if one.poll() is None), process]
        return process

    def run(
        self,
        argv: Sequence[str],
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stream: Stream | None = None,
    ) -> list[Ending]:
        """Run a command on every host and wait; `stream(rank, line)` is given every line of output.

        The first host that fails stops the others and raises ProcessFailed, which names it, its exit code and
        the last lines it wrote.
        """
        if not argv or shutil.which(argv[0]) is None:
            raise LabError(
                f"there is no program {' '.join(argv[:1])!r} to run on the hosts: check its name and PATH"
            )
        pipes: dict[str, Any] = {
            "stdin": subprocess.DEVNULL,
            "stdout": subprocess.PIPE,
            "stderr": subprocess.STDOUT,
        }
        count = len(self._hosts)
        with Supervisor(lambda rank: self.popen(rank, argv, env, **pipes), count, "host") as hosts:
            for rank, line in hosts.lines(timeout):
                if stream is not None:
                    stream(rank, line)
            return hosts.endings

    def _build(self) -> None:
        _add_namespace(self._switch)
        self._fabric = fabric(self._round_trip_s, self._switch)
        self._fabric.check(self._shape, len(self._hosts))
        for rank, host in enumerate(self._hosts):
            _add_namespace(host)
            self._write_names(host)
            self._plug_in(rank, host)
        self._fabric.connect(self._switch, [f"port{rank}" for rank in range(len(self._hosts))])

    def _plug_in(self, rank: int, host: str) -> None:
        port = ("peer", "name", f"port{rank}", "netns", self._switch)
        run_tool("ip", "-n", host, "link", "add", INTERFACE, "type", "veth", *port)
        self._shape_link(rank)
        run_tool("ip", "-n", host, "address", "add", f"{self.addresses[rank]}/24", "dev", INTERFACE)
        run_tool("ip", "-n", host, "link", "set", INTERFACE, "up")

    def _shape_link(self, rank: int) -> None:
        self._fabric.shape(self._shape, self._switch, self._hosts[rank], f"port{rank}", INTERFACE)

    def _write_names(self, host: str) -> None:
        """Name the hosts in /etc/hosts: PyTorch looks them up and warns about each that it does not find."""
        # A socket that takes IPv4 and IPv6 sees the address in its second form.
        lines = [
            f"{ip} host{rank}\n::ffff:{ip} host{rank}.mapped\n" for rank, ip in enumerate(self.addresses)
        ]
        with contextlib.suppress(OSError):  # a read-only /etc costs only those names
            (HOST_FILES / host).mkdir(parents=True)
            (HOST_FILES / host / "hosts").write_text("".join([Path("/etc/hosts").read_text(), "\n", *lines]))

    def _host(self, rank: int) -> str:
        if not 0 <= rank < len(self._hosts):
            raise LabError(f"there is no host {rank}: this lab has hosts 0 to {len(self._hosts) - 1}")
        return self._hosts[rank]

    def _torchrun(self, rank: int) -> dict[str, str]:
        """The options of torchrun, so that a script needs to know no addresses; it starts workers again.

        Agents that share one store for meeting and for workers do not meet a second time.
        """
        options = {
            "NNODES": str(len(self.addresses)),
            "RDZV_BACKEND": "c10d",
            "RDZV_ENDPOINT": f"{self.addresses[0]}:{RENDEZVOUS_PORT}",
            "RDZV_CONF": f"is_host={int(rank == 0)}",  # a namespace has its machine's name: it cannot tell
            "RDZV_ID": "netlab",
            "LOCAL_ADDR": self.addresses[rank],
        }
        named = {f"PET_{name}": value for name, value in options.items()}
        return {**named, "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    def _environment(self, rank: int) -> dict[str, str]:
        """What torch.distributed and gloo want to know; the user's own OMP_NUM_THREADS is kept."""
        return {
            "OMP_NUM_THREADS": "1",
            "PYTHONUNBUFFERED": "1",
            **os.environ,
            "RANK": str(rank),
            "WORLD_SIZE": str(len(self._hosts)),
            "LOCAL_RANK": "0",
            "LOCAL_WORLD_SIZE": "1",
            "MASTER_ADDR": self.addresses[0],
            "MASTER_PORT": str(MASTER_PORT),
            **self._torchrun(rank),
            "GLOO_SOCKET_IFNAME": INTERFACE,
        }


def available() -> str | None:
    """None if netlab can run here, found out by making a lab; else the reason in one sentence."""
    try:
        with Netlab(hosts=1, rate="1gbit"):
            return None
    except LabError as error:
        return str(error)


def _add_namespace(name: str) -> None:
    run_tool("ip", "netns", "add", name)
    run_tool("ip", "netns", "exec", name, "sh", "-c", NAMESPACE_SETUP)
    run_tool("ip", "-n", name, "link", "set", "lo", "up")


@contextlib.contextmanager
def _stoppable() -> Iterator[None]:
    """Let SIGTERM leave `with` blocks in order, and SIGINT too if a script's shell (`... &`) ignores it."""
    rules = (
        (signal.SIGTERM, signal.SIG_DFL, lambda number, frame: sys.exit(128 + number)),
        (signal.SIGINT, signal.SIG_IGN, signal.default_int_handler),
    )
    in_main = threading.current_thread() is threading.main_thread()  # only there can handlers be set
    with contextlib.ExitStack() as restore:
        for number, careless, handler in rules:
            if in_main and signal.getsignal(number) is careless:  # a handler of the user's own stays
                signal.signal(number, handler)
                restore.callback(signal.signal, number, careless)
        yield


@dataclass(frozen=True)
class HostResult:
    """One host's result."""

    host: int
    address: str
    returncode: int
    counters: InterfaceCounters

    def to_dict(self) -> dict[str, Any]:
        """The result as one flat JSON row."""
        return {
            "host": self.host,
            "address": self.address,
            "returncode": self.returncode,
            **asdict(self.counters),
            "tx_payload_bytes": self.counters.tx_payload_bytes,
            "rx_payload_bytes": self.counters.rx_payload_bytes,
        }


@dataclass(frozen=True)
class CountedRun:
    """The results of all hosts, how long the run took, and what went wrong, if anything."""

    hosts: list[HostResult]
    seconds: float
    failure: ProcessFailed | None


def run_counted(
    lab: Netlab, argv: Sequence[str], timeout: float | None = None, stream: Stream | None = None
) -> CountedRun:
    """Runs a command on every host and reads counters; a failure is in the result, not an exception."""
    ranks = range(len(lab.addresses))
    before = [lab.counters(rank) for rank in ranks]
    start = time.monotonic()
    failure: ProcessFailed | None = None
    try:
        ended = lab.run(argv, timeout=timeout, stream=stream)
    except ProcessFailed as failed:
        ended, failure = list(failed.endings), failed
    seconds = time.monotonic() - start
    hosts = [
        HostResult(rank, lab.addresses[rank], ended[rank].returncode, lab.counters(rank) - before[rank])
        for rank in ranks
    ]
    return CountedRun(hosts, seconds, failure)


def finding() -> tuple[str, str, bool]:
    """For `thinwire doctor`."""
    problem = available()
    if problem is None:
        return "netlab", "can run: hosts as network namespaces, links shaped by the kernel", True
    return "netlab", f"cannot run ({problem}); slow links are emulated instead", False
