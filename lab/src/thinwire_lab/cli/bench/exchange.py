"""`thinwire bench exchange`: one exchange of a gradient, encoding and decoding included."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from thinwire.errors import LabError
from thinwire.texts.names import check_codec_names
from thinwire.texts.rate import rate_or_none
from thinwire.texts.words import counted
from thinwire_lab.cli.bench.options import Hosts, Json, NetworkChoice, Rate, Repeats
from thinwire_lab.cli.bench.turns import turn_results
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable, with_quartiles

PIPELINES = {"on": (True,), "off": (False,), "both": (True, False)}

TABLE = RowTable(
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
    numel: Annotated[int, typer.Option(help="Elements of the gradient.", min=1)] = 6_553_600,
    codecs: Annotated[str, typer.Option(help="Codecs, separated by commas.")] = "dense,fp16,terngrad",
    repeats: Repeats = 10,
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
    from thinwire.codecs.catalog import parse
    from thinwire_lab.bench.exchange import ExchangeJob
    from thinwire_lab.net.network import open_network

    for name in names:
        parse(name)
    with open_network(limit, hosts, network) as made:
        emulated = made.emulated_rate is not None
        job = ExchangeJob(
            tuple(names), numel, repeats, rate, emulated, PIPELINES[pipeline], trace is not None
        )
        rows = turn_results("thinwire_lab.bench.exchange", asdict(job), made, hosts, as_json, trace)
        TABLE.show(
            rows,
            f"{numel:,} elements, {counted(hosts, 'host')}, {limit or 'no limit'}: {made.note()}",
            as_json,
        )
