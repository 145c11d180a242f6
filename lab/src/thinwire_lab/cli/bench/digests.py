"""`thinwire bench digests`: what exchanges give, as digests that show the smallest change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any

import typer

from thinwire.texts.words import counted
from thinwire_lab.cli.bench.options import Json
from thinwire_lab.cli.options import split_codecs
from thinwire_lab.cli.row_table import RowTable, print_json_rows
from thinwire_lab.run.codec_choice import read_codec_choice


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
        read_codec_choice(name).check_names()
    from thinwire_lab.bench.digests import WORLDS, cases
    from thinwire_lab.bench.digests import digests as found

    rows = (asdict(digest) for digest in found(names or cases(), backend))
    if as_json:
        print_json_rows(rows)
        return
    ranks = [(counted(world, "rank"), partial(_digest_at, index)) for index, world in enumerate(WORLDS)]
    table = RowTable([("codec", lambda r: r[0]["codec"]), *ranks])
    by_codec = zip(*[iter(rows)] * len(WORLDS), strict=True)
    table.show(by_codec, "digests; ! marks a run that resumed with other bits", as_json=False)


def _digest_at(index: int, rows: Sequence[dict[str, Any]]) -> str:
    return f"{rows[index]['digest']}{'' if rows[index]['resumed'] else ' !'}"
