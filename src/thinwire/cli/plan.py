"""thinwire plan: what would travel for a model, tensor by tensor, without running anything."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def plan(
    model: Annotated[
        str, typer.Argument(help="A model of the lab, such as alexnet or resnet20.")
    ] = "alexnet",
    codec: Annotated[
        str, typer.Option(help='The codec, such as terngrad or fp16; options behind @: "... @ memory=none".')
    ] = "terngrad",
    workers: Annotated[int, typer.Option(help="Number of workers.", min=1)] = 4,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON row per tensor, then the total.")] = False,
) -> None:
    """Show codec, memory, route and exact bytes for every tensor of a model.

    \b
    Examples:
      thinwire plan alexnet --codec terngrad --workers 4
      thinwire plan resnet20 --codec "terngrad:block=2048" --json
      thinwire plan alexnet --codec "topk:0.01 @ control=guard memory=none"
    """
    import thinwire as tw
    from thinwire.lab.asked import read_asked

    asked = read_asked(codec)
    asked.check_names()
    from thinwire.lab.models import model_card
    from thinwire.plan import mean_bytes

    made = asked.plan(tw.Model.of(model_card(model).build(seed=0)), workers)
    if not as_json:
        typer.echo(str(made))
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
        total["bytes_per_worker_at_share_0"] = mean_bytes(made.eased(0).stretches())
    typer.echo(json.dumps({**total, "bytes_by_phase": phases, "workers": workers, "hint": made.hint(each)}))
