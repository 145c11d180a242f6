"""`thinwire private bench`: what runs measure; finished runs are records."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from thinwire.errors import PrivateError
from thinwire_lab.cli.options import Json
from thinwire_private.cli.show import Teller, print_row

NETS = "digits,resnet8w,resnet32,resnet50"


def bench(
    what: Annotated[
        str,
        typer.Argument(
            help="ladder, digits, cifar10, operators, latency, convolutions, batch, rival, fuzz, tables, all."
        ),
    ] = "ladder",
    nets: Annotated[str, typer.Option(help="Networks, separated by commas.")] = NETS,
    variants: Annotated[str | None, typer.Option(help="Rungs, separated by commas; default: all.")] = None,
    models: Annotated[Path | None, typer.Option(help="Folder of trained .twq files.")] = None,
    data: Annotated[Path | None, typer.Option(help="Folder of data sets, for cifar10.")] = None,
    records: Annotated[Path, typer.Option(help="Folder of the records.")] = Path("docs/records"),
    links: Annotated[str | None, typer.Option(help="For latency: 320mbit/2,unshaped/80.")] = None,
    repeats: Annotated[int, typer.Option(help="Runs of a timing, interleaved.", min=1)] = 3,
    spu: Annotated[Path | None, typer.Option(help="A Python that has spu, for rival.")] = None,
    again: Annotated[bool, typer.Option("--again", help="Run also what is recorded.")] = False,
    json: Json = False,
) -> None:
    """Run the ladder from SiRNN to ours, or another bench; finished runs are records and are skipped.

    \b
    Examples:
      thinwire private bench ladder --nets digits
      thinwire private bench ladder --nets resnet32 --variants B0,S6 --json
      thinwire private bench latency --nets resnet32 --links 320mbit/2
      thinwire private bench rival --spu venv/bin/python
      thinwire private bench tables > tables.md
      thinwire private bench all --models DIR --data DIR --spu venv/bin/python
    """
    from thinwire_lab.private.table import BENCHES
    from thinwire_lab.private.wishes import Wishes

    if what not in BENCHES:
        raise PrivateError(f'there is no bench "{what}": choose one of {", ".join(BENCHES)}')
    wishes = Wishes(
        nets=_split(nets),
        variants=_split(variants) if variants else None,
        models=models,
        data=data,
        records=records,
        links=_split(links) if links else None,
        repeats=repeats,
        spu=spu,
        again=again,
    )
    with Teller(quiet=json) as teller:
        for row in BENCHES[what](wishes, teller.say):
            print_row(row) if json else typer.echo(_line(row))


def _line(row: dict[str, Any]) -> str:
    return (
        row["text"] if set(row) == {"text"} else "  ".join(f"{name} {value}" for name, value in row.items())
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
