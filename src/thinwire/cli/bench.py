"""thinwire bench: the speed of kernels, of one exchange, of one training step; interleaved, with spread."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.cli.options import split_codecs
from thinwire.errors import LabError
from thinwire.lab.asked import read_asked
from thinwire.names import check_codec_names, first_word
from thinwire.rate import rate_or_none
from thinwire.words import counted

if TYPE_CHECKING:
    from thinwire.lab.network import Network

bench = typer.Typer(
    help="Measure kernels, one exchange or one training step (interleaved), or print digests of results.",
    no_args_is_help=True,
)

Hosts = Annotated[int, typer.Option(help="Number of hosts.", min=1)]
Rate = Annotated[str, typer.Option(help="Rate of every link: 100mbit, 1gbit, ..., or none: no limit.")]
Json = Annotated[bool, typer.Option("--json", help="One JSON row per line, nothing else on stdout.")]
NetworkChoice = Annotated[
    str, typer.Option("--network", help="auto, netlab (root; the kernel shapes real links) or emulated.")
]
PIPELINES = {"on": (True,), "off": (False,), "both": (True, False)}
MEMORY_HOOKS = (
    "ddp-fp16,fp16,terngrad,qsgd:4,topk:0.01,sign,powersgd:4,fft:0.85,rangefloat:10,"
    "gradiveq:8,layers=all,sample=2,compress=10"
)
HOOKS = ("none", "ddp-again", "ddp-bucket", "ddp-best")  # of `step`, besides codecs and PyTorch's exchange
Row = dict[str, Any]
Column = tuple[str, Callable[[Any], str]]


@bench.command()
def kernels(
    codecs: Annotated[str, typer.Option(help="Codecs, separated by commas.")] = "dense,fp16,bf16,terngrad",
    numel: Annotated[int, typer.Option(help="Elements of the tensor.", min=1)] = 6_553_600,
    repeats: Annotated[int, typer.Option(help="Timed turns.", min=1)] = 20,
    backend: Annotated[str | None, typer.Option(help="Kernels to time, such as cpu-avx2.")] = None,
    as_json: Json = False,
) -> None:
    """Time encoding and decoding as multiples of copy_ of the same tensor, on one thread.

    \b
    Examples:
      thinwire bench kernels
      thinwire bench kernels --codecs terngrad,terngrad:wire=2bit --backend cpu-avx2
      thinwire bench kernels --json > kernels.jsonl
    """
    for name in split_codecs(codecs):
        check_codec_names(name)
    from thinwire.kernels import backends
    from thinwire.lab.bench.kernels import bench_kernels

    if backend is not None and backend not in backends():
        raise LabError(f'kernels "{backend}" cannot run here: use one of {", ".join(backends())}')
    columns: list[Column] = [
        ("codec", lambda r: r["codec"]),
        ("kernels", lambda r: r["kernels"]),
        ("bits", lambda r: f"{r['bits_per_element']:.2f}"),
        ("encode / copy", lambda r: f"{r['encode_x_copy']:.2f}x"),
        ("merge / copy", lambda r: f"{r['merge_x_copy']:.2f}x"),
        ("decode / copy", lambda r: f"{r['decode_x_copy']:.2f}x"),
        ("encode vs reference", lambda r: f"{r['encode_x_reference']:.0f}x faster"),
        ("decode vs reference", lambda r: f"{r['decode_x_reference']:.0f}x faster"),
    ]
    _print(
        bench_kernels(split_codecs(codecs), numel, repeats, backend), columns, f"{numel:,} elements", as_json
    )


@bench.command()
def exchange(
    hosts: Hosts = 4,
    rate: Rate = "1gbit",
    numel: Annotated[int, typer.Option(help="Elements of the gradient.", min=1)] = 6_553_600,
    codecs: Annotated[str, typer.Option(help="Codecs, separated by commas.")] = "dense,fp16,terngrad",
    repeats: Annotated[int, typer.Option(help="Timed turns.", min=1)] = 10,
    pipeline: Annotated[
        str, typer.Option(help="on, off (the gradient in one piece), or both: two rows a codec.")
    ] = "on",
    trace: Annotated[
        Path | None,
        typer.Option(help="Write a timeline: FILE.html to look at, FILE.json for chrome://tracing."),
    ] = None,
    network: NetworkChoice = "auto",
    as_json: Json = False,
) -> None:
    """Time one exchange of a gradient by N hosts, encoding and decoding included.

    The row torch-allreduce is torch.distributed.all_reduce of the fp32 gradient. A codec
    with phases is timed in the one in which it sends least; mean_planned_bytes_per_worker
    in --json counts them all.

    \b
    Examples:
      thinwire bench exchange --hosts 4 --rate 1gbit --codecs dense,fp16,terngrad
      thinwire bench exchange --rate 200mbit --codecs dense,gradiveq:8 --pipeline both --trace timeline.html
      thinwire bench exchange --hosts 8 --rate 100mbit --json
    """
    names = split_codecs(codecs)
    for name in names:
        check_codec_names(name)  # a wrong text is refused here, once, and not by every worker
    if pipeline not in PIPELINES:
        raise LabError(f'--pipeline "{pipeline}" must be one of {", ".join(PIPELINES)}')
    limit = rate_or_none(rate)
    from thinwire.catalog import parse
    from thinwire.lab.bench.exchange import Job
    from thinwire.lab.network import open_network

    for name in names:
        parse(name)
    with open_network(limit, hosts, network) as made:
        emulated = made.emulated_rate is not None
        job = Job(tuple(names), numel, repeats, rate, emulated, PIPELINES[pipeline], trace is not None)
        rows = _results("thinwire.lab.bench.exchange", asdict(job), made, hosts, as_json, trace)
        columns: list[Column] = [
            ("codec", lambda r: r["codec"] if r["pipeline"] else f"{r['codec']} in one piece"),
            ("phase", lambda r: r["phase"]),
            ("time", lambda r: _spread(r["time_ms"], r["time_ms_quartiles"], " ms", 1)),
            ("vs dense", lambda r: _spread(r["speedup_vs_dense"], r["speedup_quartiles"], "x", 2)),
            ("bytes a worker", lambda r: f"{r['bytes_per_worker']:,.0f}"),
            ("planned", lambda r: f"{r['planned_bytes_per_worker']:,}"),
        ]
        _print(
            rows,
            columns,
            f"{numel:,} elements, {counted(hosts, 'host')}, {_shown(limit)}: {made.note()}",
            as_json,
        )


@bench.command()
def step(
    model: Annotated[str, typer.Option(help="A model of the lab.")] = "alexnet",
    hosts: Hosts = 4,
    rate: Rate = "1gbit",
    hooks: Annotated[
        str,
        typer.Option(help="ddp, ddp-fp16, ddp-powersgd:RANK, ddp-bucket:MB, ddp-best, or codecs."),
    ] = "none,ddp,ddp-fp16,ddp-powersgd:4,ddp-best,terngrad",
    batch: Annotated[int, typer.Option(help="Examples per worker.", min=1)] = 16,
    repeats: Annotated[int, typer.Option(help="Timed turns.", min=1)] = 10,
    network: NetworkChoice = "auto",
    as_json: Json = False,
) -> None:
    """Time one training step (forward, backward, exchange, update) under several hooks.

    none is the floor: DDP without any exchange (no_sync). ddp-again is plain DDP
    a second time, so that the noise can be seen. ddp-best tries bucket sizes.

    \b
    Examples:
      thinwire bench step --model alexnet --hosts 4 --rate 100mbit
      thinwire bench step --model resnet20 --hooks ddp,ddp-fp16,terngrad --json
    """
    limit = rate_or_none(rate)
    for name in split_codecs(hooks):
        if first_word(name) not in HOOKS:
            read_asked(name).check_names()
    from thinwire.lab.bench.step import Job, check_hooks, with_controls
    from thinwire.lab.models import model_card
    from thinwire.lab.network import open_network

    model_card(model)
    names = with_controls(split_codecs(hooks))
    check_hooks(names)
    with open_network(limit, hosts, network) as made:
        job = Job(model, batch, names, repeats, rate, made.emulated_rate is not None)
        rows = _results("thinwire.lab.bench.step", asdict(job), made, hosts, as_json)
        columns: list[Column] = [
            ("hook", lambda r: r["hook"]),
            ("step", lambda r: _spread(r["step_ms"], r["step_ms_quartiles"], " ms", 1)),
            ("vs ddp", lambda r: _spread(r["speedup_vs_ddp"], r["speedup_quartiles"], "x", 2)),
            ("vs floor", lambda r: f"{r['floor_ratio']:.2f}x"),
            ("bytes a worker", lambda r: f"{r['bytes_per_worker']:,.0f}"),
        ]
        _print(
            rows,
            columns,
            f"{model}, batch {batch}, {counted(hosts, 'host')}, {_shown(limit)}: {made.note()}",
            as_json,
        )


@bench.command()
def digests(
    codecs: Annotated[
        str | None,
        typer.Option(help="Codecs, separated by commas; options behind @. Default: all there are."),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Kernels to use, such as reference.")] = None,
    as_json: Json = False,
) -> None:
    """Print digests of what 30 exchanges give, for every codec, memory and control.

    Gradients are made, ranks are 1, 2 and 4 threads of this process, and in the middle
    every run is saved and resumed. Run it before and after a change on one machine:
    equal digests prove that not a bit has changed.

    \b
    Examples:
      thinwire bench digests --json > before.jsonl
      thinwire bench digests --codecs "terngrad,topk:0.01 @ memory=none" --backend reference
    """
    names = None if codecs is None else split_codecs(codecs)
    for name in names or ():
        read_asked(name).check_names()
    from thinwire.lab.bench.digests import WORLDS, cases
    from thinwire.lab.bench.digests import digests as found

    rows = (asdict(digest) for digest in found(names or cases(), backend))
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    columns: list[Column] = [
        ("codec", lambda r: r[0]["codec"]),
        *((counted(world, "rank"), partial(_digest_at, index)) for index, world in enumerate(WORLDS)),
    ]
    _print(
        zip(*[iter(rows)] * len(WORLDS), strict=True),
        columns,
        "digests; ! marks a run that resumed with other bits",
        False,
    )


def _digest_at(index: int, rows: Sequence[Row]) -> str:
    return f"{rows[index]['digest']}{'' if rows[index]['resumed'] else ' !'}"


@bench.command()
def memory(
    hooks: Annotated[str, typer.Option(help="ddp-fp16, or codecs, separated by commas.")] = MEMORY_HOOKS,
    as_json: Json = False,
) -> None:
    """Measure the peak memory of two workers above plain DDP, in gradients of the model (29 M parameters).

    A few megabytes more or less are the allocator's. Buffers of a step are shared by all buckets, so a
    model of one huge layer needs more.

    \b
    Examples:
      thinwire bench memory
      thinwire bench memory --hooks "topk:0.01,topk:0.01 @ memory=residual:undo=off"
    """
    from thinwire.lab.bench.memory import bench_memory
    from thinwire.lab.bench.step import check_hooks

    names = split_codecs(hooks)
    check_hooks(names)
    columns: list[Column] = [
        ("hook", lambda r: r["hook"]),
        ("peak", lambda r: f"{r['peak_bytes'] / 1e6:,.0f} MB"),
        ("above ddp", lambda r: f"{r['gradients_above_ddp']:.2f} gradients"),
    ]
    _print(bench_memory(names), columns, "29 M parameters, 2 workers", as_json)


def _results(
    module: str,
    job: dict[str, Any],
    network: Network,
    hosts: int,
    quiet: bool,
    trace: Path | None = None,
) -> Iterator[Row]:
    """The result rows; turns are shown as progress on stderr, a timeline goes to a file."""
    from rich.console import Console
    from rich.progress import Progress

    from thinwire.lab.bench.launch import run_workers
    from thinwire.lab.bench.trace import Bar, write_trace

    with Progress(console=Console(stderr=True), transient=True, disable=quiet) as progress:
        task = progress.add_task("turns", total=None)
        for row in run_workers(module, job, network, hosts):
            if row["row"] == "turn":
                progress.update(task, completed=row["turn"], total=row["of"])
            elif row["row"] == "result":
                yield {key: value for key, value in row.items() if key != "row"}
            elif row["row"] == "trace" and trace is not None:
                write_trace(trace, [Bar(**bar) for bar in row["bars"]])


def _shown(limit: str | None) -> str:
    return limit or "no limit"


def _print(rows: Iterator[Any], columns: Sequence[Column], title: str, as_json: bool) -> None:
    if as_json:
        for row in rows:
            typer.echo(json.dumps(row))
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(title=title, title_justify="left")
    for index, (heading, _) in enumerate(columns):
        table.add_column(heading, justify="left" if index == 0 else "right")
    for row in rows:
        table.add_row(*(show(row) for _, show in columns))
    Console().print(table)


def _spread(median: float, quartiles: Sequence[float], unit: str, digits: int) -> str:
    low, high = quartiles
    return f"{median:.{digits}f}{unit} ({low:.{digits}f}-{high:.{digits}f})"
