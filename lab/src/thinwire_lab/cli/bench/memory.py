"""`thinwire bench memory`: the peak memory of two workers above plain DDP."""

from __future__ import annotations

from typing import Annotated

import typer

from thinwire_lab.cli.bench.options import Json
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable

DEFAULT_HOOKS = (
    "ddp-fp16,fp16,terngrad,qsgd:4,topk:0.01,sign,powersgd:4,fft:0.85,rangefloat:10,"
    "gradiveq:8,layers=all,sample=2,compress=10"
)

TABLE = RowTable(
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
      thinwire bench memory --hooks "topk:0.01,topk:0.01 @ memory=residual:undo=off"
    """
    from thinwire_lab.bench.memory import bench_memory
    from thinwire_lab.bench.step import check_hooks

    names = split_codecs(hooks)
    check_hooks(names)
    TABLE.show(bench_memory(names), "29 M parameters, 2 workers", as_json)
