"""thinwire netlab: run a command on N hosts that exist only on this machine, over links of a given rate."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Annotated

import typer

from thinwire.errors import LabError
from thinwire.texts import counted
from thinwire_lab.cli.options import Latency

if TYPE_CHECKING:
    from rich.console import Console

    from thinwire_lab.net.netlab import CountedRun, Netlab

HostCommand = Annotated[
    list[str] | None, typer.Argument(help="What to run on every host, after `--`.", show_default=False)
]
LinkRate = Annotated[str, typer.Option(help="Rate of every link, both ways: 100mbit, 1gbit, 2.5gbit.")]
TimeLimit = Annotated[
    float | None, typer.Option(help="Stop all hosts after so many seconds.", show_default=False)
]
HostRows = Annotated[
    bool, typer.Option("--json", help="One JSON row per host on stdout; the hosts' output goes to stderr.")
]
COLOURS = ("cyan", "magenta", "green", "yellow", "blue", "red")


def netlab(
    command: HostCommand = None,
    hosts: Annotated[int, typer.Option("--hosts", "-n", help="How many hosts to make.")] = 4,
    rate: LinkRate = "1gbit",
    latency: Latency = None,
    rank0: Annotated[bool, typer.Option("--rank0", help="Show the output of host 0 only.")] = False,
    timeout: TimeLimit = None,
    as_json: HostRows = False,
    clean: Annotated[
        bool, typer.Option("--clean", help="Remove labs whose owner process is gone, and exit.")
    ] = False,
) -> None:
    """Run a command on N hosts that exist only on this machine (root needed).

    Every host is a network namespace; its link has the given rate in both
    directions (tc tbf). --latency makes a round trip longer, for any program and
    port: by netem where the kernel has it, else by a forwarder between the hosts,
    which carries 4 Gbit/s in all.

    The command finds RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR, MASTER_PORT
    and GLOO_SOCKET_IFNAME set: a script made for torchrun runs unchanged.
    torchrun itself finds its options set too.

    Bytes are read from the interface counters. The first host that fails
    stops the others. Nothing is left behind, also after Ctrl-C.

    \b
    Examples:
      thinwire netlab --hosts 4 --rate 100mbit -- python train.py --epochs 1
      thinwire netlab -n 2 --rate 1gbit --rank0 -- python train.py
      thinwire netlab -n 2 --rate 100mbit --latency 20ms -- python train.py
      thinwire netlab -n 4 --json -- python train.py > hosts.jsonl
      thinwire netlab -n 2 -- sh -c 'echo host $RANK of $WORLD_SIZE'
      thinwire netlab -n 2 -- torchrun --nproc-per-node 2 --max-restarts 3 train.py
      thinwire netlab --clean

    \b
    Without sudo, where the kernel allows user namespaces:
      unshare -rmn sh -c 'mount -t tmpfs none /run && thinwire netlab -- ...'
    """
    from rich.console import Console

    from thinwire_lab.net.netlab import Netlab

    console = Console(stderr=as_json, highlight=False)
    if clean:
        _clean(console)
    elif not command:
        raise LabError("no command given: write it after --, as in `thinwire netlab -n 4 -- python train.py`")
    else:
        _run(command, Netlab(hosts, rate, latency), rank0, timeout, as_json, console)


def _clean(console: Console) -> None:
    from thinwire_lab.net.iproute import sweep

    removed = sweep()
    console.print(
        f"removed {counted(len(removed), 'namespace')} of labs whose owner is gone"
        if removed
        else "nothing to remove"
    )


def _run(
    command: list[str],
    made: Netlab,
    rank0: bool,
    timeout: float | None,
    as_json: bool,
    console: Console,
) -> None:
    from thinwire_lab.net.netlab import run_counted

    def show(host: int, line: str) -> None:
        if host == 0 or not rank0:
            _print_line(console, host, line)

    with made as lab:
        run = run_counted(lab, command, timeout, show)
    if as_json:
        for result in run.hosts:
            typer.echo(json.dumps(result.to_dict()))
    else:
        _print_table(console, run, made.link)
    if run.failure is not None:
        seen = run.failure.failed.rank == 0 or not rank0
        typer.secho(run.failure.sentence if seen else str(run.failure), fg="red", err=True)
        code = run.failure.failed.returncode
        raise typer.Exit(code if code > 0 else 128 - code)


def _print_line(console: Console, host: int, line: str) -> None:
    from rich.text import Text

    prefix = Text(f"[host {host}] ", style=COLOURS[host % len(COLOURS)])
    console.print(prefix.append_text(Text.from_ansi(line)), soft_wrap=True)


def _print_table(console: Console, run: CountedRun, link: str) -> None:
    from rich.filesize import decimal
    from rich.table import Table

    table = Table(title=f"hosts: {len(run.hosts)}, {link}, {run.seconds:.1f} s", title_justify="left")
    table.add_column("host", justify="right")
    table.add_column("address")
    for heading in ("exit", "sent", "received"):
        table.add_column(heading, justify="right")
    for result in run.hosts:
        ending = _ending(result.host, result.returncode, run)
        sent, received = decimal(result.counters.tx_bytes), decimal(result.counters.rx_bytes)
        table.add_row(str(result.host), result.address, ending, sent, received)
    console.print(table)


def _ending(host: int, returncode: int, run: CountedRun) -> str:
    if run.failure is not None and run.failure.failed.rank != host and returncode < 0:
        return "stopped"
    return signal.Signals(-returncode).name if returncode < 0 else str(returncode)
