"""thinwire plan: what would travel for a model, tensor by tensor, and what a step would take on a cluster."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thinwire_lab.cli.forecast import SMALL, Asked, network_asked, print_forecast
from thinwire_lab.cli.options import print_table

if TYPE_CHECKING:
    import thinwire as tw

_CLUSTER = "Forecast: what a step takes on a cluster"
HEADS = ("tensor", "elements", "bytes", "share", "codec", "memory", "route", "why")


def plan(
    model: Annotated[
        str,
        typer.Argument(
            help="alexnet, vgg-a, googlenet, resnet50, bert-large, gpt2-medium, llama-7b, a model of the "
            "lab, or your own by module:function."
        ),
    ] = "alexnet",
    codec: Annotated[
        str | None,
        typer.Option(
            help="The codec, such as fp16; terngrad if none is named, as nobody knows what auto would take. "
            'Options behind @: "... @ memory=none".'
        ),
    ] = None,
    workers: Annotated[int, typer.Option(help="Number of workers.", min=1)] = 4,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON rows: one per tensor and the total, or one per codec.")
    ] = False,
    nodes: Annotated[
        int | None, typer.Option(help="Nodes of the cluster (4).", rich_help_panel=_CLUSTER)
    ] = None,
    gpus: Annotated[int | None, typer.Option(help="GPUs in each node (1).", rich_help_panel=_CLUSTER)] = None,
    link: Annotated[
        str | None,
        typer.Option(
            help="Between nodes: a rate such as 1gbit or 1gbit:latency=20us, or ib100, ib200, ib400.",
            rich_help_panel=_CLUSTER,
        ),
    ] = None,
    intra: Annotated[
        str | None,
        typer.Option(
            help="Inside a node: pcie, pcie4, nvlink, nvlink1, nvlink3, nvlink4.", rich_help_panel=_CLUSTER
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(help="gtx1080, p100, v100, a100, h100 or cpu (v100).", rich_help_panel=_CLUSTER),
    ] = None,
    batch: Annotated[
        int | None, typer.Option(help="Examples a GPU and step.", rich_help_panel=_CLUSTER)
    ] = None,
    examples_per_s: Annotated[
        float | None,
        typer.Option(help="What one GPU does without any exchange.", rich_help_panel=_CLUSTER),
    ] = None,
    share: Annotated[
        float | None,
        typer.Option(
            help="Part of the device that each worker has when all run at once (1).", rich_help_panel=_CLUSTER
        ),
    ] = None,
    codecs: Annotated[
        str | None,
        typer.Option(help="Codecs to forecast, separated by commas.", rich_help_panel=_CLUSTER),
    ] = None,
    way: Annotated[
        str | None,
        typer.Option(help="best, flat (all workers) or hierarchical (leaders).", rich_help_panel=_CLUSTER),
    ] = None,
    sweep: Annotated[
        str | None,
        typer.Option(help="nodes or link: a table, a PNG and a page of curves.", rich_help_panel=_CLUSTER),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the curves (here).", rich_help_panel=_CLUSTER)
    ] = None,
) -> None:
    """Show what would travel for a model; with a cluster, what a step would take, codec by codec.

    Without any option of the forecast: codec, memory, route and exact bytes of every tensor.

    \b
    Examples:
      thinwire plan alexnet --codec terngrad --workers 4
      thinwire plan alexnet --codec "topk:0.01 @ control=guard memory=none"
      thinwire plan resnet50 --nodes 128 --gpus 4 --link 1gbit --intra pcie
      thinwire plan bert-large --nodes 16 --gpus 8 --link ib100 --intra nvlink3 --device a100 --json
      thinwire plan vgg-a --nodes 8 --sweep link --out curves
      thinwire plan my_nets:build --nodes 4 --codecs "terngrad,topk:0.01" --examples-per-s 900

    "alexnet" is the lab's small one (32x32 pictures) where tensors are shown, and the paper's (60.97 M
    parameters) in a forecast; alexnet-32 and alexnet-224 mean one of them everywhere.
    """
    asked = Asked(
        model, nodes, gpus, link, intra, device, batch, examples_per_s, share, codecs or None, way, sweep, out
    )
    if asked.is_forecast:
        both = codec if codecs is None else codecs if codec is None else f"{codecs},{codec}"
        print_forecast(Asked(**{**vars(asked), "codecs": both}), as_json)
    else:
        print_tensors(model, codec or "terngrad", workers, as_json)


def print_tensors(model: str, codec: str, workers: int, as_json: bool) -> None:
    """Codec, memory, route and exact bytes for every tensor of a model."""
    from thinwire_lab.run.recipe import read_codec_choice

    asked = read_codec_choice(codec)
    asked.check_names()
    from thinwire.plans.plan import mean_bytes

    made = asked.plan(_model(model), workers)
    if not as_json:
        print_table(HEADS, made.rows(), "", narrow=True)
        typer.echo(made.summary())
        return
    each = made.tensor_bytes()
    sent = sum(each.values())
    for entry in made.entries:
        nbytes = each[entry.spec.name]
        row = {
            "name": entry.spec.name,
            "numel": entry.spec.numel,
            "codec": str(entry.codec),
            "memory": entry.memory,
            "route": entry.route,
            "reason": entry.reason,
            "bytes": nbytes,
            "share": nbytes / sent if sent else 0.0,
        }
        typer.echo(json.dumps(row))
    stretches = made.stretches()
    total = {"bytes_per_worker": mean_bytes(stretches), "dense_bytes_per_worker": made.dense_bytes}
    phases = {stretch.phase: stretch.step_bytes for stretch in stretches}
    if made.control is not None:
        total["bytes_per_worker_at_strength_0"] = mean_bytes(made.at_strength(0).stretches())
    typer.echo(json.dumps({**total, "bytes_by_phase": phases, "workers": workers, "hint": made.hint(each)}))


def _model(name: str) -> tw.Model:
    """A model of the lab, a layer table, or the user's own."""
    import thinwire as tw
    from thinwire_lab.models import MODELS

    small = "alexnet" if name == SMALL else name
    if small in MODELS:
        return tw.Model.of(MODELS[small].build(seed=0))
    from thinwire.perf.wire import model_of_layers

    return model_of_layers(network_asked(name).layers)
