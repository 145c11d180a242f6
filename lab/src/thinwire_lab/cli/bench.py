"""`thinwire bench`: kernels, exchanges, steps, memory and digests; what is compared takes turns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.cli.table import split_codecs
from thinwire.codecs.catalog import check_codec_names
from thinwire.errors import LabError
from thinwire.texts import counted, first_word, rate_or_none
from thinwire_lab.cli.bars import ProgressBar
from thinwire_lab.cli.bench_cells import auto, clusters, grid
from thinwire_lab.cli.options import (
    Hosts,
    Json,
    Latency,
    NetworkChoice,
    Rate,
    Repeats,
    RowTable,
    print_json_rows,
    with_quartiles,
)
from thinwire_lab.run.recipe import read_codec_choice

if TYPE_CHECKING:
    from thinwire_lab.net.network import LabNetwork


Row = dict[str, Any]


def turn_results(
    module: str,
    job: dict[str, Any],
    network: LabNetwork,
    hosts: int,
    quiet: bool,
    trace: Path | None = None,
) -> Iterator[Row]:
    """The result rows; turns are shown as progress on stderr, a timeline goes to a file."""
    from thinwire_lab.bench.exchange import Bar, write_trace
    from thinwire_lab.net.workers import run_workers

    with ProgressBar(quiet) as bar:
        for row in run_workers(module, job, network, hosts):
            if row["row"] == "turn":
                bar.tell("turns", row["turn"], row["of"])
            elif row["row"] == "result":
                yield {key: value for key, value in row.items() if key != "row"} | {
                    "latency": network.latency
                }
            elif row["row"] == "trace" and trace is not None:
                write_trace(trace, [Bar(**one) for one in row["bars"]])


KERNEL_TABLE = RowTable(
    (
        ("codec", lambda r: r["codec"]),
        ("kernels", lambda r: r["kernels"]),
        ("bits", lambda r: f"{r['bits_per_element']:.2f}"),
        ("encode / copy", lambda r: f"{r['encode_x_copy']:.2f}x"),
        ("merge / copy", lambda r: f"{r['merge_x_copy']:.2f}x"),
        ("decode / copy", lambda r: f"{r['decode_x_copy']:.2f}x"),
        ("encode vs reference", lambda r: f"{r['encode_x_reference']:.0f}x faster"),
        ("decode vs reference", lambda r: f"{r['decode_x_reference']:.0f}x faster"),
    )
)


def kernels(
    codecs: Annotated[str, typer.Option(help="Codecs, separated by commas.")] = "dense,fp16,bf16,terngrad",
    numel: Annotated[int, typer.Option(help="Elements of the tensor.", min=1)] = 6_553_600,
    repeats: Repeats = 20,
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
    from thinwire_lab.bench.micro import bench_kernels

    if backend is not None and backend not in backends():
        raise LabError(f'kernels "{backend}" cannot run here: use one of {", ".join(backends())}')
    names = split_codecs(codecs)
    with ProgressBar(as_json) as bar:
        rows = bar.over(bench_kernels(names, numel, repeats, backend), "codecs", len(names))
        KERNEL_TABLE.show(rows, f"{numel:,} elements", as_json)


Pipeline = Annotated[
    str, typer.Option(help="on, off (the gradient in one piece), or both: two rows a codec.")
]
TraceFile = Annotated[
    Path | None, typer.Option(help="Write a timeline: FILE.html to look at, FILE.json for chrome://tracing.")
]
PIPELINES = {"on": (True,), "off": (False,), "both": (True, False)}

EXCHANGE_TABLE = RowTable(
    (
        ("codec", lambda r: r["codec"] if r["pipeline"] else f"{r['codec']} in one piece"),
        ("phase", lambda r: r["phase"]),
        ("time", lambda r: with_quartiles(r["time_ms"], r["time_ms_quartiles"], " ms", 1)),
        ("vs dense", lambda r: with_quartiles(r["speedup_vs_dense"], r["speedup_quartiles"], "x", 2)),
        ("bytes a worker", lambda r: f"{r['bytes_per_worker']:,.0f}"),
        ("planned", lambda r: f"{r['planned_bytes_per_worker']:,}"),
    )
)


def exchange(
    hosts: Hosts = 4,
    rate: Rate = "1gbit",
    latency: Latency = None,
    numel: Annotated[int, typer.Option(help="Elements of the gradient.", min=1)] = 6_553_600,
    codecs: Annotated[str, typer.Option(help="Codecs, separated by commas.")] = "dense,fp16,terngrad",
    repeats: Repeats = 10,
    pipeline: Pipeline = "on",
    trace: TraceFile = None,
    doors: Annotated[bool, typer.Option(help="Every codec once more, by tw.Exchange.mean_.")] = False,
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
    from thinwire.codecs.codec import parse
    from thinwire_lab.bench.exchange import ExchangeJob
    from thinwire_lab.net.network import open_network

    for name in names:
        parse(name)
    with open_network(limit, hosts, network, latency=latency) as made:
        emulated = made.emulated_rate is not None
        job = ExchangeJob(
            tuple(names), numel, repeats, rate, emulated, PIPELINES[pipeline], trace is not None, doors
        )
        rows = turn_results("thinwire_lab.bench.exchange", asdict(job), made, hosts, as_json, trace)
        EXCHANGE_TABLE.show(
            rows,
            f"{numel:,} elements, {counted(hosts, 'host')}, {limit or 'no limit'}: {made.note()}",
            as_json,
        )


DEFAULT_HOOKS = (
    "ddp-fp16,fp16,terngrad,qsgd:4,topk:0.01,sign,powersgd:4,fft:0.85,rangefloat:10,"
    "gradiveq:8,layers=all,sample=2,compress=10"
)

MEMORY_TABLE = RowTable(
    (
        ("hook", lambda r: r["hook"]),
        ("peak", lambda r: f"{r['peak_bytes'] / 1e6:,.0f} MB"),
        ("above ddp", lambda r: f"{r['gradients_above_ddp']:.2f} gradients"),
    )
)


def memory(
    hooks: Annotated[str, typer.Option(help="ddp-fp16, or codecs, separated by commas.")] = DEFAULT_HOOKS,
    as_json: Json = False,
) -> None:
    """Measure the peak memory of two workers above plain DDP, in gradients of the model (29 M parameters).

    A few megabytes more or less are the allocator's. Buffers of a step are shared by all buckets, so a
    model of one huge layer needs more.

    \b
    Examples:
      thinwire bench memory
      thinwire bench memory --hooks "topk:0.01,topk:0.01 @ feedback=residual:undo=off"
    """
    from thinwire_lab.bench.micro import BASE, bench_memory
    from thinwire_lab.bench.step import check_hooks

    names = split_codecs(hooks)
    check_hooks(names)
    with ProgressBar(as_json) as bar:
        rows = bar.over(bench_memory(names), "hooks", len({BASE, *names}))
        MEMORY_TABLE.show(rows, "29 M parameters, 2 workers", as_json)


def digests(
    codecs: Annotated[
        str | None,
        typer.Option(help="Codecs, separated by commas; options follow @. Default: all."),
    ] = None,
    backend: Annotated[str | None, typer.Option(help="Kernels to use, such as reference.")] = None,
    as_json: Json = False,
) -> None:
    """Print digests of what 30 exchanges give, for every codec, error feedback and schedule.

    Gradients are made, ranks are 1, 2 and 4 threads of this process, and in the middle
    every run is saved and resumed. Run it before and after a change on one machine:
    equal digests prove that not a bit has changed.

    \b
    Examples:
      thinwire bench digests --json > before.jsonl
      thinwire bench digests --codecs "terngrad,topk:0.01 @ feedback=none" --backend reference
    """
    names = None if codecs is None else split_codecs(codecs)
    for name in names or ():
        read_codec_choice(name).check_names()
    from thinwire_lab.bench.digests import WORLDS, cases
    from thinwire_lab.bench.digests import digests as found

    texts = names or cases()
    rows = (asdict(digest) for digest in found(texts, backend))
    if as_json:
        print_json_rows(rows)
        return
    ranks = [(counted(world, "rank"), partial(_digest_at, index)) for index, world in enumerate(WORLDS)]
    table = RowTable([("codec", lambda r: r[0]["codec"]), *ranks])
    by_codec = zip(*[iter(rows)] * len(WORLDS), strict=True)
    with ProgressBar(quiet=False) as bar:
        shown = bar.over(by_codec, "codecs", len(texts))
        table.show(shown, "digests; ! marks a run that resumed with other bits", as_json=False)


def _digest_at(index: int, rows: Sequence[dict[str, Any]]) -> str:
    return f"{rows[index]['digest']}{'' if rows[index]['resumed'] else ' !'}"


HOOKS = ("none", "ddp-again", "ddp-bucket", "ddp-best")  # besides codecs and PyTorch's own exchange

STEP_TABLE = RowTable(
    (
        ("hook", lambda r: r["hook"]),
        ("step", lambda r: with_quartiles(r["step_ms"], r["step_ms_quartiles"], " ms", 1)),
        ("vs ddp", lambda r: with_quartiles(r["speedup_vs_ddp"], r["speedup_quartiles"], "x", 2)),
        ("vs floor", lambda r: f"{r['floor_ratio']:.2f}x"),
        ("bytes a worker", lambda r: f"{r['bytes_per_worker']:,.0f}"),
    )
)


def step(
    model: Annotated[str, typer.Option(help="A model of the lab.")] = "alexnet",
    hosts: Hosts = 4,
    rate: Rate = "1gbit",
    latency: Latency = None,
    hooks: Annotated[
        str,
        typer.Option(help="ddp, ddp-fp16, ddp-powersgd:RANK, ddp-bucket:MB, ddp-best, or codecs."),
    ] = "none,ddp,ddp-fp16,ddp-powersgd:4,ddp-best,terngrad",
    batch: Annotated[int, typer.Option(help="Examples per worker.", min=1)] = 16,
    repeats: Repeats = 10,
    per_host: Annotated[
        int, typer.Option("--workers-per-host", help="Workers on each host; netlab only.", min=1)
    ] = 1,
    network: NetworkChoice = "auto",
    as_json: Json = False,
) -> None:
    """Time one training step (forward, backward, exchange, update) under several hooks.

    none is the floor: DDP without any exchange (no_sync). ddp-again is plain DDP
    a second time, so that the noise can be seen. ddp-best tries bucket sizes.

    \b
    Examples:
      thinwire bench step --model alexnet --hosts 4 --rate 100mbit --latency 20ms
      thinwire bench step --model resnet20 --hooks ddp,ddp-fp16,terngrad --json
      thinwire bench step --hosts 2 --workers-per-host 2 --hooks "terngrad,terngrad @ hierarchy=auto"
    """
    limit = rate_or_none(rate)
    for name in split_codecs(hooks):
        if first_word(name) not in HOOKS:
            read_codec_choice(name).check_names()
    from thinwire_lab.bench.step import StepJob, check_hooks, with_schedules
    from thinwire_lab.models import model_card
    from thinwire_lab.net.network import open_network

    model_card(model)
    names = with_schedules(split_codecs(hooks))
    check_hooks(names)
    workers = hosts * per_host
    with open_network(limit, workers, network, per_host, latency) as made:
        job = StepJob(model, batch, names, repeats, rate, made.emulated_rate is not None, per_host)
        rows = turn_results("thinwire_lab.bench.step", asdict(job), made, workers, as_json)
        cluster = counted(hosts, "host") + (f" of {per_host} workers" if per_host > 1 else "")
        STEP_TABLE.show(
            rows,
            f"{model}, batch {batch}, {cluster}, {limit or 'no limit'}: {made.note()}",
            as_json,
        )


FSDP_TABLE = RowTable(
    (
        ("gradients and weights", lambda r: r["variant"]),
        ("resharded", lambda r: "yes" if r["reshard_after_forward"] else "no"),
        ("step", lambda r: with_quartiles(r["step_ms"], r["step_ms_quartiles"], " ms", 0)),
        ("speed-up", lambda r: with_quartiles(r["speedup"], r["speedup_quartiles"], "x", 2)),
        ("bytes a step", lambda r: f"{r['bytes_per_step']:,.0f}"),
        ("backward pass", lambda r: f"{r['backward_bytes']:,.0f}"),
        ("planned gradients", lambda r: f"{r['planned_gradient_bytes'] or 0:,}"),
        ("planned weights", lambda r: f"{r['planned_weights_bytes'] or 0:,}"),
    )
)
FSDP_VARIANTS = "qsgd:4;terngrad;qsgd:4 weights=qsgd:8;qsgd:4 weights=difference >> qsgd:4"


def fsdp(
    hosts: Hosts = 4,
    rate: Rate = "100mbit",
    latency: Latency = None,
    variants: Annotated[
        str, typer.Option(help='Codecs, separated by semicolons; " weights=..." behind one if wanted.')
    ] = FSDP_VARIANTS,
    width: Annotated[int, typer.Option(help="Of the transformer, a multiple of 64.", min=64)] = 384,
    depth: Annotated[int, typer.Option(help="Blocks of the transformer, each a unit.", min=1)] = 3,
    batch: Annotated[int, typer.Option(help="Examples a worker.", min=1)] = 2,
    repeats: Repeats = 10,
    network: NetworkChoice = "auto",
    as_json: Json = False,
) -> None:
    """Time a step of a transformer under FSDP2, plain and compressed, with and without resharding.

    Bytes are those of a host's interface (netlab). Without resharding a backward pass sends
    nothing but gradients.

    \b
    Examples:
      thinwire bench fsdp
      thinwire bench fsdp --rate 1gbit --variants "terngrad;qsgd:4" --json
    """
    limit = rate_or_none(rate)
    names = [name.strip() for name in variants.split(";")]
    for name in names:
        check_codec_names(name.partition(" weights=")[0])
    from thinwire_lab.bench.fsdp import PLAIN, FsdpJob
    from thinwire_lab.net.network import open_network

    with open_network(limit, hosts, network, latency=latency) as made:
        job = FsdpJob((PLAIN, *names), width, depth, batch, 64, repeats, rate)
        rows = turn_results("thinwire_lab.bench.fsdp", asdict(job), made, hosts, as_json)
        title = f"transformer of width {width} and depth {depth}, {counted(hosts, 'host')}, {limit}"
        FSDP_TABLE.show(rows, f"{title}: {made.note()}", as_json)


bench = typer.Typer(
    help="Measure kernels, an exchange, a training step, a grid of forecasts; or print digests of results.",
    no_args_is_help=True,
)
for command in (kernels, exchange, step, fsdp, grid, auto, clusters, digests, memory):
    bench.command()(command)
