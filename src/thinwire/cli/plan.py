"""thinwire plan: what would travel for a model, tensor by tensor, and what a step would take on a cluster."""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from thinwire.cli.forecast import SMALL, Asked, added_models, network_asked, print_forecast
from thinwire.cli.local import print_local
from thinwire.cli.table import format_table
from thinwire.codecs.catalog import check_codec_names
from thinwire.texts import FEEDBACKS, ROUTES, SCHEDULES, check_name, split_options

if TYPE_CHECKING:
    import thinwire as tw

HEADS = ("tensor", "elements", "bytes", "share", "codec", "feedback", "route", "why")
ABOUT = """Show what would travel for a model; with a cluster, what a step would take, codec by codec.

Without any option of the forecast: codec, error feedback, route and exact bytes of every tensor."""
EXAMPLES = """examples:
  thinwire plan alexnet --codec terngrad --workers 4
  thinwire plan alexnet --codec "topk:0.01 @ schedule=guard feedback=none"
  thinwire plan resnet50 --nodes 128 --gpus 4 --link 1gbit --intra pcie
  thinwire plan bert-large --nodes 16 --gpus 8 --link ib100 --intra nvlink3 --device a100 --json
  thinwire plan vgg-a --nodes 8 --sweep link --out curves
  thinwire plan gpt2-medium --nodes 8 --link 100mbit --local 10,30 --tokens 2e9
  thinwire plan my_nets:build --nodes 4 --codecs "terngrad,topk:0.01" --examples-per-s 900

Where the lab is installed, "alexnet" is its small one (32x32 pictures) where tensors are shown, and the
paper's (60.97 M parameters) in a forecast; alexnet-32 and alexnet-224 mean one of them everywhere."""


def run(arguments: Sequence[str]) -> None:
    """The command, with its name first."""
    given = vars(parser().parse_args(arguments[1:]))
    codec, workers, as_json = given.pop("codec"), given.pop("workers"), given.pop("json")
    asked = Asked(**given)
    if asked.is_forecast:
        both = codec if asked.codecs is None else asked.codecs if codec is None else f"{asked.codecs},{codec}"
        show = print_forecast if asked.local is None else print_local
        show(Asked(**{**given, "codecs": both}), as_json)
    else:
        print_tensors(asked.model, codec or "terngrad", workers, as_json)


def parser() -> argparse.ArgumentParser:
    """Its options."""
    made = argparse.ArgumentParser(
        "thinwire plan",
        description=ABOUT,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = made.add_argument
    add(
        "model",
        nargs="?",
        default="alexnet",
        help="alexnet, vgg-a, googlenet, resnet50, bert-large, gpt2-medium, llama-7b, a model of the lab, or "
        "your own by module:function",
    )
    add("--codec", help='such as fp16 (terngrad). Options behind @: "... @ feedback=none"')
    add("--workers", type=_at_least_one, default=4, help="number of workers (4)")
    add("--json", action="store_true", help="JSON rows: one per tensor and the total, or one per codec")
    add = made.add_argument_group("forecast: what a step takes on a cluster").add_argument
    add("--nodes", type=int, help="nodes of the cluster (4)")
    add("--gpus", type=int, help="GPUs in each node (1)")
    add("--link", help="between nodes: a rate such as 1gbit or 1gbit:latency=20us, or ib100, ib200, ib400")
    add("--intra", help="inside a node: pcie, pcie4, nvlink, nvlink1, nvlink3, nvlink4")
    add("--device", help="gtx1080, p100, v100, a100, h100 or cpu (v100)")
    add("--batch", type=int, help="examples per GPU and step")
    add("--examples-per-s", type=float, help="what one GPU does without any exchange")
    add("--share", type=float, help="part of the device that each worker has when all run at once (1)")
    add("--codecs", help="codecs to forecast, separated by commas")
    add("--way", help="best, flat (all workers) or hierarchical (leaders)")
    add("--sweep", help="nodes or link: a table, and with the lab a PNG and a page of curves")
    add("--out", type=Path, help="folder for the curves (here)")
    add(
        "--local",
        help="local steps (tw.DiLoCo): exchange every 10,30 steps beside every step, quickest first",
    )
    add("--steps", type=_at_least_one, help="with --local: steps of the run, for its length in hours")
    add("--tokens", type=float, help="with --local: tokens of the run instead, of all workers, as in 2e9")
    return made


def print_tensors(model: str, codec: str, workers: int, as_json: bool) -> None:
    """Codec, error feedback, route and exact bytes for every tensor of a model."""
    text, options = split_options(codec)
    check_codec_names(text)
    for what, known in (("feedback", FEEDBACKS), ("route", ROUTES), ("schedule", SCHEDULES)):
        asked = options.get(what)
        if asked is not None:
            check_name(what, asked, known)
    import thinwire as tw
    from thinwire.plans.plan import mean_bytes

    feedback, route, schedule = (options.get(what) for what in ("feedback", "route", "schedule"))
    policy = tw.Policy.of(text, sensitive=options.get("sensitive"))
    made = tw.Plan.of(policy, _model(model), workers, feedback, route, schedule)
    if not as_json:
        print(format_table(HEADS, made.rows()))
        print(made.summary())
        return
    each = made.tensor_bytes()
    sent = sum(each.values())
    for entry in made.entries:
        nbytes = each[entry.spec.name]
        row = {
            "name": entry.spec.name,
            "numel": entry.spec.numel,
            "codec": str(entry.codec),
            "feedback": entry.feedback,
            "route": entry.route,
            "reason": entry.reason,
            "bytes": nbytes,
            "share": nbytes / sent if sent else 0.0,
        }
        print(json.dumps(row))
    stretches = made.stretches()
    total = {"bytes_per_worker": mean_bytes(stretches), "dense_bytes_per_worker": made.dense_bytes}
    phases = {stretch.phase: stretch.step_bytes for stretch in stretches}
    if made.schedule is not None:
        total["bytes_per_worker_at_level_0"] = mean_bytes(made.at_level(0).stretches())
    print(json.dumps({**total, "bytes_by_phase": phases, "workers": workers, "hint": made.hint(each)}))


def _model(name: str) -> tw.Model:
    """A model that an installed package adds, a layer table, or the user's own."""
    import thinwire as tw
    from thinwire.perf.wire import model_of_layers

    added = added_models()
    small = "alexnet" if name == SMALL else name
    if small in added:
        return tw.Model.of(added[small]()[0])
    return model_of_layers(network_asked(name).layers)


def _at_least_one(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not in the range x>=1")
    return number
