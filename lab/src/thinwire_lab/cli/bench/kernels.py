"""`thinwire bench kernels`: encoding and decoding beside a plain copy."""

from __future__ import annotations

from typing import Annotated

import typer

from thinwire.errors import LabError
from thinwire.texts.names import check_codec_names
from thinwire_lab.cli.bench.options import Json, Repeats
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable

TABLE = RowTable(
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
    from thinwire_lab.bench.kernels import bench_kernels

    if backend is not None and backend not in backends():
        raise LabError(f'kernels "{backend}" cannot run here: use one of {", ".join(backends())}')
    TABLE.show(bench_kernels(split_codecs(codecs), numel, repeats, backend), f"{numel:,} elements", as_json)
