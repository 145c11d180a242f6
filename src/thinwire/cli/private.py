"""thinwire private: a server's model on a client's input, neither of which the other sees."""

from __future__ import annotations

import json as json_
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.cli.options import Json, Out
from thinwire.cli.private_search import pareto, search
from thinwire.cli.private_train import train
from thinwire.errors import PrivateError

if TYPE_CHECKING:
    from thinwire.private.net.graph import Graph
    from thinwire.private.variant import Variant

private = typer.Typer(
    help="Private inference: a server's quantized network on a client's input, neither seen by the other.",
    no_args_is_help=True,
)
for _command in (train, search, pareto):
    private.command()(_command)

NETS = "digits,resnet8w,resnet32,resnet50"
VariantName = Annotated[
    str, typer.Option("--variant", help="Protocols: ours, or a rung of the ladder (B0, S1, ...).")
]
Cert = Annotated[Path | None, typer.Option("--cert", help="Certificate of this side, PEM.")]
Key = Annotated[Path | None, typer.Option("--key", help="Its key, PEM.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds the other side may be silent.", min=0.1)]
ModelFile = Annotated[Path, typer.Option("--model", help="A .twq file (thinwire private train makes one).")]


@private.command()
def demo(
    images: Annotated[int, typer.Option(help="Images of the digits test set.", min=1)] = 20,
    variant: VariantName = "ours",
    model: Annotated[
        Path | None, typer.Option(help="A .twq file for digits; default: train one now.")
    ] = None,
    out: Out = Path("runs"),
    json: Json = False,
) -> None:
    """Two processes on this machine: a CNN on digits, private predictions equal to the plaintext ones.

    Shows bytes (predicted and measured), flights and seconds per layer and operator, and
    writes a page with the picture. Takes less than two minutes and downloads nothing.

    \b
    Examples:
      thinwire private demo
      thinwire private demo --images 5 --variant S6-ss8
      thinwire private demo --json
    """
    from thinwire.private.demo import run_demo

    with _Teller(quiet=json) as teller:
        outcome, folder = run_demo(images, variant, model, out, _command_line(), teller.say, teller.step)
    if json:
        for entry in outcome.entries:
            _print_row({"row": "operator", **entry.row()})
        _print_row({**outcome.row(), "page": str(folder / "report.html")})
    else:
        _show(outcome, folder)
    if not outcome.matches:
        raise typer.Exit(1)


@private.command()
def serve(
    model: ModelFile,
    listen: Annotated[str, typer.Option(help="HOST:PORT; beyond this machine only with TLS.")],
    cert: Cert = None,
    key: Key = None,
    client_ca: Annotated[
        Path | None, typer.Option(help="Let in only clients with a certificate of this authority.")
    ] = None,
    variant: VariantName = "ours",
    max_clients: Annotated[int, typer.Option(help="Clients at once.", min=1)] = 16,
    timeout: Timeout = 60.0,
) -> None:
    """Serve a model until Ctrl-C. Clients learn its architecture and their answers, nothing else.

    \b
    Examples:
      thinwire private serve --model m.twq --listen 127.0.0.1:7000
      thinwire private serve --model m.twq --listen 0.0.0.0:7000 --cert server.pem --key server.key
      thinwire private serve --model m.twq --listen 0.0.0.0:7000 --cert server.pem --key server.key \\
        --client-ca ca.pem
    """
    from thinwire.private.description import digest
    from thinwire.private.link.tls import parse_address, told
    from thinwire.private.net.twq import read_twq
    from thinwire.private.server import Server

    graph, chosen = read_twq(model).graph, _variant(variant)
    server = Server(
        graph,
        parse_address(listen),
        variant=chosen,
        certificate=cert,
        key=key,
        client_ca=client_ca,
        timeout_s=timeout,
        max_clients=max_clients,
        tell=lambda text: typer.echo(text, err=True),
    )
    with server:
        typer.echo(f"serving {graph.name} on {told(server.address)}, model {digest(graph, chosen).hex()}")
        try:
            server.wait()
        except KeyboardInterrupt:
            typer.echo("stopped", err=True)


@private.command()
def infer(
    server: Annotated[str, typer.Option(help="HOST:PORT of the server.")],
    input: Annotated[Path, typer.Option(help="A .npy file of integers, one picture or many.")],
    ca: Annotated[Path | None, typer.Option(help="Authority of the server's certificate, PEM.")] = None,
    cert: Cert = None,
    key: Key = None,
    expect: Annotated[str | None, typer.Option(help="Insist on this model (the server prints it).")] = None,
    output: Annotated[Path | None, typer.Option(help="Write the output as .npy.")] = None,
    timeout: Timeout = 60.0,
    json: Json = False,
) -> None:
    """Predict privately: the server does not see the input, and only this side learns the answer.

    \b
    Examples:
      thinwire private infer --server 127.0.0.1:7000 --input x.npy
      thinwire private infer --server hospital.example:7000 --input x.npy --ca ca.pem --output y.npy
      thinwire private infer --server 127.0.0.1:7000 --input x.npy --json
    """
    import numpy as np

    from thinwire.private.client import Client
    from thinwire.private.ledger import total

    x = _read_array(input)
    with Client(server, ca=ca, certificate=cert, key=key, expected=expect, timeout_s=timeout) as client:
        answer = client.predict(x)
        entries = client.entries
    if output is not None:
        np.save(output, answer)
    classes = answer[:, 0] if client.graph.output.argmax else answer.argmax(axis=1)
    whole = total(entries)
    if json:
        for place, (name, row) in enumerate(zip(classes, answer, strict=True)):
            _print_row({"row": "answer", "image": place, "class": int(name), "output": row.tolist()})
        _print_row(
            {
                "row": "total",
                "images": len(answer),
                "predicted_bytes": whole.predicted_bytes,
                "measured_bytes": whole.measured_bytes,
                "seconds": round(whole.seconds, 3),
            }
        )
        return
    for place, name in enumerate(classes):
        typer.echo(f"image {place}: class {name}")
    typer.echo(
        f"{whole.measured_bytes:,} bytes ({whole.predicted_bytes:,} predicted), {whole.seconds:.2f} s",
        err=True,
    )


@private.command()
def cost(
    model: Annotated[str, typer.Argument(help="A .twq file, or a network of the zoo such as resnet32:W4A6.")],
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
      thinwire private cost resnet32:W4A6 --rate 100mbit --round-trip 80
      thinwire private cost resnet32:W16A16 --variant B0 --operators --json
    """
    from thinwire.private.costing import cost_rows

    rows = cost_rows(_graph(model), _variant(variant), batch, rate, round_trip / 1e3, operators)
    if json:
        for row in rows:
            _print_row(row)
        return
    heads = ("layer", "operator", "phase", "upload bytes", "download bytes", "flights", "seconds")
    cells = [
        [
            row["layer"],
            row["operator"],
            row["phase"],
            f"{row['upload_bytes']:,}",
            f"{row['download_bytes']:,}",
            f"{row['flights']:,}",
            f"{row['seconds']:.3f}",
        ]
        for row in rows
    ]
    _print_table(f"{model}, variant {variant}, batch {batch}, {rate}, {round_trip:g} ms", heads, cells)


@private.command()
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
      thinwire private bench latency --repeats 3
      thinwire private bench rival --spu venv/bin/python
      thinwire private bench tables > tables.md
      thinwire private bench all --models DIR --data DIR --spu venv/bin/python
    """
    from thinwire.private.bench.table import BENCHES
    from thinwire.private.bench.wishes import Wishes

    if what not in BENCHES:
        raise PrivateError(f'there is no bench "{what}": choose one of {", ".join(BENCHES)}')
    wishes = Wishes(
        nets=_split(nets),
        variants=_split(variants) if variants else None,
        models=models,
        data=data,
        records=records,
        repeats=repeats,
        spu=spu,
        again=again,
    )
    with _Teller(quiet=json) as teller:
        for row in BENCHES[what](wishes, teller.say):
            _print_row(row) if json else typer.echo(_line(row))


@private.command()
def certificate(
    hosts: Annotated[list[str], typer.Argument(help="Names or addresses of the server.")],
    out: Annotated[Path, typer.Option(help="Folder for the five files.")] = Path("certificates"),
) -> None:
    """Make an authority and certificates of your own for a first try on two machines.

    \b
    Examples:
      thinwire private certificate hospital.example 192.0.2.7
    """
    from thinwire.private.link.certificate import write_certificates

    for path in write_certificates(out, hosts).values():
        typer.echo(str(path))


def _graph(text: str) -> Graph:
    """A model file, or a network of the zoo with bits behind a colon."""
    from thinwire.private.net.bits import read_bits
    from thinwire.private.net.twq import read_twq
    from thinwire.private.net.zoo import ZOO, build

    name, _, bits = text.partition(":")
    if name in ZOO:
        return build(name, read_bits(bits or "W4A6"))
    return read_twq(Path(text)).graph


def _variant(name: str) -> Variant:
    from thinwire.private.variant import variant

    return variant(name)


def _read_array(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise PrivateError(f"{path} cannot be read: give a .npy file of integers") from None


def _show(outcome: Any, folder: Path) -> None:
    from thinwire.private.report import HEADS, entry_rows, phase_rows, verdict

    _print_table(outcome.title, HEADS, entry_rows(outcome.entries))
    _print_table(
        "In all",
        ("phase", "predicted bytes", "measured bytes", "flights", "seconds", ""),
        phase_rows(outcome),
    )
    typer.echo(verdict(outcome))
    typer.echo(f"page: {folder / 'report.html'}")


def _print_table(title: str, heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(title), title_justify="left", title_style="bold")
    for head in heads:
        is_text = head in ("layer", "operator", "phase")
        table.add_column(
            head,
            justify="left" if is_text else "right",
            no_wrap=head == "phase" or not is_text,
            overflow="fold",
        )
    for row in rows:
        table.add_row(*map(escape, row))
    Console().print(table)


def _print_row(row: dict[str, Any]) -> None:
    typer.echo(json_.dumps(row))


def _line(row: dict[str, Any]) -> str:
    return (
        row["text"] if set(row) == {"text"} else "  ".join(f"{name} {value}" for name, value in row.items())
    )


def _split(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _command_line() -> str:
    from thinwire.cli.session import command_line

    return command_line()


class _Teller:
    """Sentences and a bar on standard error."""

    def __init__(self, quiet: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

        self._console = Console(stderr=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            TextColumn("{task.completed:.0f}/{task.total:.0f}"),
            TimeElapsedColumn(),
        )
        self._bars = Progress(*columns, console=self._console, transient=True, disable=quiet)
        self._task: Any = None
        self._quiet = quiet

    def __enter__(self) -> _Teller:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def say(self, text: str) -> None:
        if not self._quiet:
            self._console.print(text, highlight=False, markup=False)

    def step(self, done: int, of: int, text: str) -> None:
        if self._task is None:
            self._task = self._bars.add_task(text, total=of)
        self._bars.update(self._task, completed=done, total=of, description=text)
