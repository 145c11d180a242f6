"""netlab on real namespaces: rates, counters, environment, failures, and that nothing is ever left behind."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from thinwire.errors import LabError
from thinwire_lab.net.iproute import InterfaceCounters, read_counters, sweep
from thinwire_lab.net.netlab import Netlab, available, run_counted
from thinwire_lab.process import ProcessFailed

OBSTACLE = available()
needs_netlab = pytest.mark.skipif(OBSTACLE is not None, reason=f"netlab cannot run here: {OBSTACLE}")

CLI = [sys.executable, "-c", "from thinwire.cli import main; main()", "netlab"]
QUIET: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "text": True}

# Host 1 sends argv[1] bytes to host 0, which prints how many are missing and the seconds since host 1 began:
# on a busy machine that is too long, never too short (all processes read the same clock).
TRANSFER = """
import os, socket, struct, sys, time
left, buffer = int(sys.argv[1]) - 8, bytearray(1 << 18)
if os.environ["RANK"] == "0":
    connection, _ = socket.create_server(("", 5000)).accept()
    start = struct.unpack("d", connection.recv(8, socket.MSG_WAITALL))[0]
    while got := connection.recv_into(buffer):
        left -= got
    print(left, time.perf_counter() - start)
else:
    for _ in range(5000):
        try:
            connection = socket.create_connection((os.environ["MASTER_ADDR"], 5000))
            break
        except ConnectionRefusedError:
            time.sleep(0.02)
    connection.sendall(struct.pack("d", time.perf_counter()))
    while left:
        left -= connection.send(memoryview(buffer)[:left])
"""


@pytest.fixture(scope="module")
def lab() -> Iterator[Netlab]:
    with Netlab(hosts=2, rate="100mbit") as made:
        yield made


def transfer(lab: Netlab, size: int) -> float:
    """The seconds that `size` bytes take from host 1 to host 0."""
    lines: list[str] = []
    lab.run(["python3", "-c", TRANSFER, str(size)], timeout=300, stream=lambda rank, line: lines.append(line))
    missing, seconds = lines[0].split()
    assert missing == "0"
    return float(seconds)


def namespaces(owner: int) -> list[str]:
    folder = Path("/var/run/netns")
    return (
        [path.name for path in folder.iterdir() if path.name.startswith(f"thinwire-{owner}-")]
        if folder.is_dir()
        else []
    )


def nothing_is_left(owner: int) -> bool:
    return not namespaces(owner)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def wait_for(condition: Callable[[], bool], patience_s: float = 300.0) -> bool:
    deadline = time.monotonic() + patience_s
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


@needs_netlab
class TestLinks:
    @pytest.mark.timing
    @pytest.mark.parametrize(
        ("rate", "bits", "size"), [("20mbit", 2e7, 1e6), ("100mbit", 1e8, 5e6), ("1gbit", 1e9, 50e6)]
    )
    def test_transfers_have_the_rate_that_was_asked_for(
        self, lab: Netlab, rate: str, bits: float, size: float
    ) -> None:
        lab.set_rate(rate)
        assert size * 8 / bits < transfer(lab, int(size)) < 4 * size * 8 / bits  # not another unit

    @pytest.mark.parametrize(("rate", "bits", "size"), [("10mbit", 1e7, 2e5), ("1gbit", 1e9, 1e6)])
    def test_nothing_is_quicker_than_the_rate_and_no_large_burst_passes(
        self, lab: Netlab, rate: str, bits: float, size: float
    ) -> None:
        lab.set_rate(rate)
        assert transfer(lab, int(size)) > 0.9 * size * 8 / bits

    def test_both_ends_of_a_link_are_shaped(self, lab: Netlab) -> None:
        shown = [
            subprocess.run(
                ["tc", "-n", name, "qdisc", "show"], capture_output=True, text=True, check=True
            ).stdout
            for name in namespaces(os.getpid())
        ]
        assert sorted(text.count("qdisc tbf") for text in shown) == [1, 1, 2]

    def test_counters_tell_the_payload_of_a_known_transfer(self, lab: Netlab) -> None:
        for rate in ("100mbit", "1gbit"):  # cut up by the shaper, and in segments of 64 kB
            lab.set_rate(rate)
            before = [lab.counters(rank) for rank in (0, 1)]
            transfer(lab, 3_000_000)
            received, sent = (lab.counters(rank) - before[rank] for rank in (0, 1))
            assert sent.tx_payload_bytes == pytest.approx(3_000_000, rel=0.01)
            assert received.rx_payload_bytes == pytest.approx(3_000_000, rel=0.01)
            assert received.tx_payload_bytes < 30_000

    def test_a_silent_host_sends_nothing(self, lab: Netlab) -> None:
        before = lab.counters(0)
        lab.run(["sleep", "0.3"])
        assert (lab.counters(0) - before).tx_payload_bytes <= 0  # at most ARP

    def test_a_process_reads_the_counters_of_its_own_host(self, lab: Netlab) -> None:
        code = (
            "from thinwire_lab.net.iproute import read_counters as r; print(r() == r('eth0'), r().tx_bytes)"
        )
        transfer(lab, 100_000)
        process = lab.popen(1, [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
        said, _ = process.communicate(timeout=300)
        assert said.strip() == f"True {lab.counters(1).tx_bytes}"


@needs_netlab
class TestCommands:
    def test_the_environment_is_that_of_torchrun(self, lab: Netlab) -> None:
        names = "RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT GLOO_SOCKET_IFNAME EXTRA"
        lines: dict[int, str] = {}
        lab.run(
            ["sh", "-c", f"echo {' '.join('$' + n for n in names.split())}"],
            {"EXTRA": "x"},
            300,
            lines.__setitem__,
        )
        address = lab.addresses[0]
        assert lines == {rank: f"{rank} 2 0 {address} 29500 eth0 x" for rank in (0, 1)}

    def test_threads_default_to_one_and_the_users_choice_is_kept(
        self, lab: Netlab, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        lines: list[str] = []
        for given in (None, "3"):
            monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
            if given is not None:
                monkeypatch.setenv("OMP_NUM_THREADS", given)
            lab.run(["sh", "-c", "echo $OMP_NUM_THREADS"], stream=lambda rank, line: lines.append(line))
        assert lines == ["1", "1", "3", "3"]

    def test_the_first_failure_names_the_host_and_stops_the_others(self, lab: Netlab) -> None:
        with pytest.raises(
            ProcessFailed, match=r"host 1 ended with exit code 7.*\n  \[host 1\] because"
        ) as caught:
            lab.run(["sh", "-c", "[ $RANK = 1 ] || exec sleep 3600; echo because; exit 7"])
        assert [host.returncode for host in caught.value.endings] == [-signal.SIGTERM, 7]

    def test_a_killed_host_is_the_one_that_is_named(self, lab: Netlab) -> None:
        with pytest.raises(ProcessFailed, match="host 0 was killed by SIGKILL"):
            lab.run(["sh", "-c", "[ $RANK = 0 ] && kill -9 $$; exec sleep 3600"])

    def test_a_timeout_stops_all_hosts(self, lab: Netlab) -> None:
        with pytest.raises(LabError, match=r"host 0, 1 still running after 0\.2 s"):
            lab.run(["sleep", "3600"], timeout=0.2)

    def test_a_counted_run_counts_every_host(self, lab: Netlab) -> None:
        lab.set_rate("1gbit")
        run = run_counted(lab, ["python3", "-c", TRANSFER, "500000"], timeout=300)
        row = run.hosts[1].to_dict()
        assert run.failure is None
        assert row["tx_payload_bytes"] == pytest.approx(500_000, rel=0.01)
        assert (row["host"], row["address"], row["returncode"]) == (1, lab.addresses[1], 0)

    @pytest.mark.parametrize("argv", [[], ["no-such-program"]])
    def test_a_command_that_does_not_exist_is_refused(self, lab: Netlab, argv: list[str]) -> None:
        with pytest.raises(LabError, match="no program"):
            lab.run(argv)

    def test_an_unknown_host_is_refused(self, lab: Netlab) -> None:
        with pytest.raises(LabError, match="no host 2: this lab has hosts 0 to 1"):
            lab.counters(2)


@needs_netlab
class TestCleaningUp:
    def test_after_an_exception_nothing_is_left(self) -> None:
        here = set(namespaces(os.getpid()))
        made, processes = set(), []

        def fail() -> None:
            with Netlab(hosts=2, rate="1gbit") as lab:
                processes.append(lab.popen(0, ["sleep", "1000"]))
                made.update(set(namespaces(os.getpid())) - here)
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            fail()
        assert len(made) == 3
        assert set(namespaces(os.getpid())) == here
        assert processes[0].returncode == -signal.SIGTERM
        assert not any((Path("/etc/netns") / name).exists() for name in made)

    def test_a_daemon_that_left_its_session_is_killed(self, tmp_path: Path) -> None:
        pids: list[int] = []
        with Netlab(hosts=1, rate="1gbit") as lab:
            said = tmp_path / "said"
            script = f"setsid sh -c 'echo $$; touch {said}; exec sleep 3600' & "
            script += f"while [ ! -e {said} ]; do sleep 0.02; done"
            lab.run(["sh", "-c", script], stream=lambda rank, line: pids.append(int(line)))
            assert alive(pids[0])
        assert not alive(pids[0])

    def test_after_a_signal_to_the_command_line_nothing_is_left(self) -> None:
        # Started with SIGINT ignored, as a shell script does with what it runs in the background.
        ignoring = ["sh", "-c", "trap '' INT; exec \"$@\"", "sh"]
        command = [*ignoring, *CLI, "--hosts", "2", "--", "sh", "-c", "echo $$; exec sleep 1000"]
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
        with contextlib.ExitStack() as owners:
            started = [owners.enter_context(subprocess.Popen(command, **QUIET)) for _ in numbers]
            for owner in started:  # so that a failure below does not wait for ever
                owners.callback(owner.kill)
            for owner, number in zip(started, numbers, strict=True):
                assert owner.stdout is not None
                pids = [int(owner.stdout.readline().rpartition("]")[2]) for _ in range(2)]
                assert all(alive(pid) for pid in pids)
                owner.send_signal(number)
                assert owner.wait(timeout=300) != 0
                if number == signal.SIGKILL:  # the janitor works on its own
                    assert wait_for(partial(nothing_is_left, owner.pid))
                assert nothing_is_left(owner.pid), number
                assert not any(alive(pid) for pid in pids), number

    def test_handlers_of_signals_are_put_back(self) -> None:
        numbers = (signal.SIGTERM, signal.SIGINT)
        before = [signal.getsignal(number) for number in numbers]
        with Netlab(hosts=1, rate="1gbit"):
            assert signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL
        assert [signal.getsignal(number) for number in numbers] == before

    def test_the_sweeper_removes_dead_owners_labs_only(self) -> None:
        with subprocess.Popen(["true"]) as gone:
            pass
        stale = f"thinwire-{gone.pid}-1-abcd-h0"
        reused = f"thinwire-{os.getpid()}-1-abcd-h0"  # this process lives, but started at another time
        for name in (stale, reused):
            subprocess.run(["ip", "netns", "add", name], check=True)
        with Netlab(hosts=1, rate="1gbit") as lab:
            removed = sweep()
            assert {stale, reused} <= set(removed)
            assert not {stale, reused} & {path.name for path in Path("/var/run/netns").iterdir()}
            lab.run(["true"])


class TestRefusals:
    @pytest.mark.parametrize("hosts", [-1, 0, 251])
    def test_a_wrong_number_of_hosts(self, hosts: int) -> None:
        with pytest.raises(LabError, match=f"{hosts} hosts: ask for 1 to 250"):
            Netlab(hosts=hosts, rate="1gbit")

    @pytest.mark.parametrize("rate", ["1gb", "100", "5kbit", "101gbit"])
    def test_a_wrong_rate(self, rate: str) -> None:
        with pytest.raises(LabError, match=f'"{rate}"'):
            Netlab(hosts=2, rate=rate)

    def test_missing_tools(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("thinwire_lab.net.iproute.search_path", lambda: "")
        assert "install iproute2" in (available() or "")

    def test_an_unknown_interface_names_those_there_are(self) -> None:
        with pytest.raises(LabError, match=r"no interface 'nope' on this host: name one of .*lo"):
            read_counters("nope")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can stop being root")
    def test_without_root_one_sentence_names_the_way_out(self) -> None:
        os.seteuid(65534)
        try:
            reason = available() or ""
        finally:
            os.seteuid(0)
        assert "needs root" in reason
        assert "sudo" in reason
        assert "tw.Link" in reason
        assert "\n" not in reason


def test_counters_subtract() -> None:
    passed = InterfaceCounters(1000, 10, 500, 5) - InterfaceCounters(100, 1, 50, 2)
    assert passed == InterfaceCounters(900, 9, 450, 3)
    assert passed.tx_payload_bytes == 900 - 66 * 9
