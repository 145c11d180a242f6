"""The rival: SPU (Cheetah) on the same small CNN, in a network namespace of its own, beside ours."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from thinwire.errors import PrivateError
from thinwire_lab.private import rival_spu
from thinwire_lab.private.host import Host
from thinwire_lab.private.ladder import calm_picture, summary
from thinwire_lab.private.parties import run_parties
from thinwire_lab.private.rungs import Rung, rungs_named
from thinwire_lab.private.visitor import Visitor
from thinwire_lab.private.wishes import Row, Say, Wishes
from thinwire_private.program import prepare_graph

IMAGES = 6
ATTEMPTS, SPU_TIMEOUT_S = 3, 300
RUNGS = ("B0", "B1", "S6", "S6-ss8", "ours")
HOW = "python -m venv V && V/bin/pip install spu 'jax<=0.4.34' 'jaxlib<=0.4.34' 'numpy<2', --spu V/bin/python"


def rival(wishes: Wishes, say: Say) -> Iterator[Row]:
    """SPU in rings of 64 and 32 bits, then rungs of ours; one picture a query, the first one apart."""
    if wishes.spu is None:
        raise PrivateError(f"the rival needs a Python with SPU in a throw-away venv: {HOW}")
    for field in (64, 32):
        say(f"SPU, {field}-bit ring")
        settings = {"system": "spu", "ring_bits": field, "images": IMAGES}
        yield wishes.once("rival", settings, _spu, wishes.spu, field)
    for rung in rungs_named(wishes.variants or RUNGS, wishes.models):
        say(f"thinwire {rung.name}")
        settings = {"system": "thinwire", "rung": rung.name, "images": IMAGES}
        yield wishes.once("rival", settings, _ours, rung)


def _spu(python: Path, field: int) -> Row:
    """It crashes or hangs now and then with 32 bits: tried three times, and how often is recorded."""
    script = f"ip link set lo up && exec {python.absolute()} {rival_spu.__file__} {field} {IMAGES}"
    for attempt in range(1, ATTEMPTS + 1):
        failed = f"no answer in {SPU_TIMEOUT_S} s"
        with contextlib.suppress(subprocess.TimeoutExpired):
            done = subprocess.run(
                ["unshare", "-n", "sh", "-c", script], capture_output=True, text=True, timeout=SPU_TIMEOUT_S
            )
            failed = f"exit code {done.returncode}"
            rows = [line for line in done.stdout.splitlines() if line.startswith('{"system"')]
            if done.returncode == 0 and rows:
                return {**json.loads(rows[-1]), "attempts": attempt}
    return {"system": f"SPU Cheetah, {field}-bit ring", "failed": failed, "attempts": ATTEMPTS}


def _ours(rung: Rung) -> Row:
    graph = rung.graph("digits")
    x, _ = calm_picture(prepare_graph(graph, rung.variant), IMAGES)
    with tempfile.TemporaryDirectory() as folder:
        run = run_parties(
            Path(folder),
            graph,
            x,
            Host("", rung.name),
            Visitor("", "", ""),
        )
    figures = summary(run)
    queries = sorted(row["seconds"] for row in run.client["queries"][1:])
    setup = figures["setup_bytes"]
    return {
        "system": f"thinwire {rung.name}",
        "bytes_first": setup + (figures["bytes"] - setup) // IMAGES,
        "bytes": (figures["bytes"] - setup) // IMAGES,
        "seconds_first": run.client["ready_seconds"] + run.client["queries"][0]["seconds"],
        "seconds": queries[len(queries) // 2],
        "images": IMAGES,
        "largest_error": float(figures["mismatches"]),
    }
