"""`thinwire private cost` and `bench`: bytes before anything runs, and what runs measure."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.errors import PrivateError
from thinwire_lab.cli.options import Json
from thinwire_lab.cli.private_show import Teller, VariantName, print_row, print_table

if TYPE_CHECKING:
    from thinwire_private.net.graph import Graph

NETS = "digits,resnet8w,resnet32,resnet50"


def cost(
    model: Annotated[
        str,
        typer.Argument(
            help="A .twq file, or a network of the zoo: resnet32:W4A6, or resnet32:list with mixed widths."
        ),
    ],
    variant: VariantName = "ours",
    batch: Annotated[int, typer.Option(help="Pictures in a query.", min=1)] = 1,
    rate: Annotated[str, typer.Option(help="Rate of the link, for the seconds.")] = "320mbit",
    round_trip: Annotated[float, typer.Option(help="Round trip of the link in ms.", min=0)] = 2.0,
    operators: Annotated[bool, typer.Option(help="Every operator, not only layers.")] = False,
    json: Json = False,
) -> None:
    """Exact bytes and flights before anything runs, and the seconds a link needs for them.

    Seconds are bytes / rate + hops x round trip / 2, without computation. Hops are
    flights, but two messages that cross each other count once.

    \b
    Examples:
      thinwire private cost m.twq
      thinwire private cost resnet32:list
      thinwire private cost resnet32:W4A6 --rate 100mbit --round-trip 80
      thinwire private cost resnet32:W16A16 --variant B0 --operators --json
    """
    from thinwire_private.costing import cost_rows
    from thinwire_private.variant import variant as named

    rows = cost_rows(_graph(model), named(variant), batch, rate, round_trip / 1e3, operators)
    if json:
        for row in rows:
            print_row(row)
        return
    heads = ("layer", "operator", "phase", "upload bytes", "download bytes", "flights", "seconds")
    shown = [head for head in heads if operators or head != "operator"]
    cells = [[_cell(row[head.replace(" ", "_")]) for head in shown] for row in rows]
    print_table(f"{model}, variant {variant}, batch {batch}, {rate}, {round_trip:g} ms", shown, cells)
    total = rows[-1]["upload_bytes"] + rows[-1]["download_bytes"]
    typer.echo(f"{model}: {total:,} bytes in both directions ({total / 1e6:,.0f} MB)")


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


def _graph(text: str) -> Graph:
    """A model file, or a network of the zoo with bits behind a colon."""
    from thinwire_private.net.twq import read_twq
    from thinwire_private.net.zoo import ZOO, read_net

    if text.partition(":")[0] in ZOO:
        return read_net(text)
    return read_twq(Path(text)).graph


def _cell(value: str | int | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:,}" if isinstance(value, int) else f"{value:.3f}"


def _line(row: dict[str, Any]) -> str:
    return (
        row["text"] if set(row) == {"text"} else "  ".join(f"{name} {value}" for name, value in row.items())
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
