"""`thinwire private serve`, `infer`, `cost` and `certificate`: two parties, and what they send."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from thinwire.errors import PrivateError
from thinwire_private.cli.show import Json, ProgressOutput, VariantName, parse_bytes, print_row, print_table

if TYPE_CHECKING:
    from thinwire_private.costs import CostEntry
    from thinwire_private.net.graph import Graph
    from thinwire_private.net.nodes import IntArray

Cert = Annotated[Path | None, typer.Option("--cert", help="Certificate of this side, PEM.")]
Key = Annotated[Path | None, typer.Option("--key", help="Its key, PEM.")]
Timeout = Annotated[float, typer.Option("--timeout", help="Seconds the other side may be silent.", min=0.1)]
ModelFile = Annotated[Path, typer.Option("--model", help="A .twq file (thinwire private train makes one).")]


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
    max_per_peer: Annotated[int, typer.Option(help="Clients of one address at once.", min=1)] = 8,
    max_batch: Annotated[int, typer.Option(help="Pictures in one query.", min=1, max=1024)] = 64,
    max_memory: Annotated[str, typer.Option(help="Memory of all prepared queries.")] = "4GB",
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT on this machine for GET /health and /metrics.")
    ] = None,
    grace: Annotated[float, typer.Option(help="Seconds that running requests have at a stop.", min=0)] = 30.0,
    timeout: Timeout = 60.0,
    json: Annotated[bool, typer.Option("--json", help="Log events as JSON lines.")] = False,
) -> None:
    """Serve a model until Ctrl-C or SIGTERM. Clients learn its architecture and their answers, nothing else.

    \b
    Examples:
      thinwire private serve --model m.twq --listen 127.0.0.1:7000
      thinwire private serve --model m.twq --listen 0.0.0.0:7000 --cert server.pem --key server.key
      thinwire private serve --model m.twq --listen 0.0.0.0:7000 --cert server.pem --key server.key \\
        --client-ca ca.pem
      thinwire private serve --model m.twq --listen 127.0.0.1:7000 --metrics 127.0.0.1:7001 --json
    """
    from thinwire_private.compiler import prepare_graph
    from thinwire_private.link.tls import format_address, parse_address
    from thinwire_private.net.twq import read_twq
    from thinwire_private.server import Limits, Server
    from thinwire_private.service import keep_memory_flat, log_line, run_service
    from thinwire_private.sessions import digest
    from thinwire_private.variant import variant as named

    def tell(text: str) -> None:
        typer.echo(log_line(text) if json else text, err=True)

    keep_memory_flat()
    graph, chosen = read_twq(model).graph, named(variant)
    server = Server(
        graph,
        parse_address(listen),
        variant=chosen,
        certificate=cert,
        key=key,
        client_ca=client_ca,
        timeout_s=timeout,
        limits=Limits(max_clients, max_per_peer, max_batch, parse_bytes(max_memory)),
        tell=tell,
    )
    with server:
        model_digest = digest(prepare_graph(graph, chosen), chosen).hex()
        typer.echo(f"serving {graph.name} on {format_address(server.address)}, model {model_digest}")
        run_service(server, None if metrics is None else parse_address(metrics), grace, tell)


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

    from thinwire_private.client import Client
    from thinwire_private.costs import total

    x = _read_array(input)
    with (
        ProgressOutput(quiet=json) as bar,
        Client(
            server,
            ca=ca,
            certificate=cert,
            key=key,
            expected=expect,
            timeout_s=timeout,
            watch=lambda progress: bar.step(round(100 * progress.done), 100, str(progress)),
        ) as client,
    ):
        answer = client.predict(x)
        entries = client.entries
    if output is not None:
        np.save(output, answer)
    classes = answer[:, 0] if client.graph.output.argmax else answer.argmax(axis=1)
    show = _print_answer_rows if json else _print_answers
    show(classes, answer, total(entries))


def _print_answer_rows(classes: IntArray, answer: IntArray, whole: CostEntry) -> None:
    for place, (name, row) in enumerate(zip(classes, answer, strict=True)):
        print_row({"row": "answer", "image": place, "class": int(name), "output": row.tolist()})
    print_row(
        {
            "row": "total",
            "images": len(answer),
            "predicted_bytes": whole.predicted_bytes,
            "measured_bytes": whole.measured_bytes,
            "seconds": round(whole.seconds, 3),
        }
    )


def _print_answers(classes: IntArray, answer: IntArray, whole: CostEntry) -> None:
    for place, name in enumerate(classes):
        typer.echo(f"image {place}: class {name}")
    typer.echo(
        f"{whole.measured_bytes:,} bytes ({whole.predicted_bytes:,} predicted), {whole.seconds:.2f} s",
        err=True,
    )


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
    from thinwire_private.costs import cost_rows
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


def certificate(
    hosts: Annotated[list[str], typer.Argument(help="Names or addresses of the server.")],
    out: Annotated[Path, typer.Option(help="Folder for the five files.")] = Path("certificates"),
) -> None:
    """Make an authority and certificates of your own for a first try on two machines.

    \b
    Examples:
      thinwire private certificate hospital.example 192.0.2.7
    """
    from thinwire_private.link.tls import write_certificates

    for path in write_certificates(out, hosts).values():
        typer.echo(str(path))


def _read_array(path: Path) -> Any:
    import numpy as np

    try:
        return np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError):
        raise PrivateError(f"{path} cannot be read: give a .npy file of integers") from None


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
