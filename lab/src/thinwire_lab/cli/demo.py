"""`thinwire demo`: the point of thinwire in about a minute: the same training over a slow link, twice."""

from __future__ import annotations

from pathlib import Path

from thinwire_lab.cli.options import Json, NetworkName, Out, Picture
from thinwire_lab.cli.run_options import RunOptions
from thinwire_lab.net.network import AUTO


def demo(
    out: Out = Path("runs"), network: NetworkName = AUTO, json: Json = False, png: Picture = False
) -> None:
    """Train a small CNN on digits with 4 workers over slow links: first plain DDP, then TernGrad.

    It takes about a minute on two cores and downloads nothing. As root the links are real ones between
    network namespaces, shaped by the kernel; otherwise thinwire emulates them. The codec is named, since auto
    would spend a good part of so short a run on its trials.

    \b
    Examples:
      thinwire demo
      thinwire demo --network emulated --png
    """
    from thinwire_lab.run.recipes import demo as recipe
    from thinwire_lab.run.session import grid

    run = RunOptions(out=out, network=network, json=json, png=png)
    recipes = grid(recipe(), ("ddp", "terngrad"), num_seeds=1)
    run.show("Plain DDP against TernGrad over a slow link", "demo", recipes)
