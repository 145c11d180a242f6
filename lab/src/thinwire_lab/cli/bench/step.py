"""`thinwire bench step`: one training step under several hooks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from thinwire.texts.names import first_word
from thinwire.texts.rate import rate_or_none
from thinwire.texts.words import counted
from thinwire_lab.cli.bench.options import Hosts, Json, NetworkChoice, Rate, Repeats
from thinwire_lab.cli.bench.turns import turn_results
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable, with_quartiles
from thinwire_lab.run.codec_choice import read_codec_choice

HOOKS = ("none", "ddp-again", "ddp-bucket", "ddp-best")  # besides codecs and PyTorch's own exchange

TABLE = RowTable(
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
      thinwire bench step --model alexnet --hosts 4 --rate 100mbit
      thinwire bench step --model resnet20 --hooks ddp,ddp-fp16,terngrad --json
      thinwire bench step --hosts 2 --workers-per-host 2 --hooks "terngrad,terngrad @ hierarchy=auto"
    """
    limit = rate_or_none(rate)
    for name in split_codecs(hooks):
        if first_word(name) not in HOOKS:
            read_codec_choice(name).check_names()
    from thinwire_lab.bench.step import StepJob, check_hooks, with_controls
    from thinwire_lab.models import model_card
    from thinwire_lab.net.network import open_network

    model_card(model)
    names = with_controls(split_codecs(hooks))
    check_hooks(names)
    workers = hosts * per_host
    with open_network(limit, workers, network, per_host) as made:
        job = StepJob(model, batch, names, repeats, rate, made.emulated_rate is not None, per_host)
        rows = turn_results("thinwire_lab.bench.step", asdict(job), made, workers, as_json)
        cluster = counted(hosts, "host") + (f" of {per_host} workers" if per_host > 1 else "")
        TABLE.show(
            rows,
            f"{model}, batch {batch}, {cluster}, {limit or 'no limit'}: {made.note()}",
            as_json,
        )
