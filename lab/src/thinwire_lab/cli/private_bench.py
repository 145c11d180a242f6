"""`thinwire private bench`: what runs measure; finished runs are records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.errors import PrivateError, ThinwireError
from thinwire_lab.cli.options import Json
from thinwire_private.cli.show import ProgressOutput, print_row

if TYPE_CHECKING:
    from thinwire_lab.private.records import BenchOptions

    Bench = Callable[[BenchOptions, Callable[[str], None]], Iterator[dict[str, Any]]]

ALL = "all"
NETS = "digits,resnet8w,resnet32,resnet50"


def bench(
    what: Annotated[
        str,
        typer.Argument(
            help="ladder, digits, cifar10, operators, latency, convolutions, batch, large, load, "
            "rival, fuzz, tables, all."
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
    from thinwire_lab.private.records import BenchOptions

    benches = _benches()
    if what not in (*benches, ALL):
        raise PrivateError(f'there is no bench "{what}": choose one of {", ".join((*benches, ALL))}')
    options = BenchOptions(
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
    with ProgressOutput(quiet=json) as teller:
        chosen = _all(benches) if what == ALL else benches[what]
        for row in chosen(options, teller.say):
            print_row(row) if json else typer.echo(_line(row))


def _benches() -> dict[str, Bench]:
    """The benches by name; importing them takes seconds."""
    from thinwire_lab.private.fuzz import fuzzing
    from thinwire_lab.private.ladder import batch, cifar10, convolutions, digits, ladder
    from thinwire_lab.private.large import large
    from thinwire_lab.private.latency import latency
    from thinwire_lab.private.load import load
    from thinwire_lab.private.records import write_tables
    from thinwire_lab.private.rival import operators, rival

    return {
        "ladder": ladder,
        "digits": digits,
        "cifar10": cifar10,
        "operators": operators,
        "latency": latency,
        "convolutions": convolutions,
        "batch": batch,
        "large": large,
        "load": load,
        "rival": rival,
        "fuzz": fuzzing,
        "tables": write_tables,
    }


def _all(benches: Mapping[str, Bench]) -> Bench:
    """All benches, one after the other, for a quiet machine; what lacks something is skipped."""

    def run(options: BenchOptions, say: Callable[[str], None]) -> Iterator[dict[str, Any]]:
        for name, bench in benches.items():
            say(f"--- {name}")
            try:
                yield from bench(options, say)
            except ThinwireError as error:
                say(f"{name} is skipped: {error}")

    return run


def _line(row: dict[str, Any]) -> str:
    return (
        row["text"] if set(row) == {"text"} else "  ".join(f"{name} {value}" for name, value in row.items())
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())
