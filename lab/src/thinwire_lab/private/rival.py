"""Rivals: SiRNN's protocols one by one against its own code (SCI), and SPU (Cheetah) on the same CNN."""

from __future__ import annotations

import contextlib
import json
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from thinwire.errors import PrivateError
from thinwire_lab.private import rival_spu
from thinwire_lab.private.ladder import Rung, calm_picture, rungs_named, summary
from thinwire_lab.private.parties import BenchClient, BenchServer, run_parties
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.compiler import prepare_graph
from thinwire_private.link.channel import Channel, memory_pair
from thinwire_private.message import CLIENT, SERVER
from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.b2a import B2A, Mux
from thinwire_private.protocols.extend import SIRNN, Ars, Extend, Truncate
from thinwire_private.protocols.linear import Shape, Sirnn, SirnnSwapped
from thinwire_private.protocols.operator import Operator, Party
from thinwire_private.protocols.sign import Msb, Relu, Wrap

COUNT = 65_536
KIND = OtKind.read("kk13+iknp")
RunParty = Callable[[Party], Any]
IMAGES = 6
ATTEMPTS, SPU_TIMEOUT_S = 3, 300
RUNGS = ("B0", "B1", "S6", "S6-ss8", "ours")
HOW = "python -m venv V && V/bin/pip install spu 'jax<=0.4.34' 'jaxlib<=0.4.34' 'numpy<2', --spu V/bin/python"


@dataclass(frozen=True)
class Case:
    """An operator, how to run it on random shares, and what SCI sends: bits per element, or MB of a product.

    `judged`: the issue asks for at most 2 % difference; the others are reported only.
    """

    name: str
    steps: tuple[tuple[Operator, RunParty], ...]
    sci: float
    unit: str = "bits"
    judged: bool = True


def operators(options: BenchOptions, say: Say) -> Iterator[Row]:
    """One row per operator."""
    for case in cases():
        say(case.name)
        settings = {"operator": case.name, "elements": COUNT if case.unit == "bits" else 1}
        yield options.once("operators", settings, measure, case)


def cases() -> Iterator[Case]:
    """The SCI column: 65,536 elements, both directions; products of 16x144x1024 in bytes."""
    for width, bits in ((4, 272), (8, 724), (12, 1160), (16, 1744), (20, 2180), (32, 3932)):
        yield _unary(f"Mill({width})", Wrap(COUNT, width, KIND), width, bits)
    yield _unary("MSB(16)", Msb(COUNT, 16, KIND), 16, 1744)
    yield Case("B2A(16)", ((b2a := B2A(COUNT, 16, KIND), lambda p: b2a.run(p, _bits(p))),), 144)
    mux = Mux(COUNT, 16, KIND)
    yield Case("MUX(16)", ((mux, lambda p: mux.run(p, _bits(p), _ring(p, COUNT, 16))),), 288)
    for width, bits in ((8, 1012), (16, 2064), (32, 4316)):
        yield _unary(f"ReLU({width})", Relu(COUNT, width, KIND, chosen=True), width, bits)
    for low, high, bits in ((8, 16, 860), (16, 32, 1888)):
        yield _unary(f"Ext({low}→{high})", Extend(COUNT, low, high, KIND), low, bits)
    for low, high, bits in ((8, 16, 396), (16, 32, 404)):
        yield _unary(f"Ext({low}→{high}), MSB known", Extend(COUNT, low, high, KIND, SIRNN), low, bits)
    for width, shift, bits in ((16, 8, 860), (16, 10, 1294), (32, 16, 1888)):
        yield _unary(f"TR({width},{shift})", Truncate(COUNT, width, shift, KIND), width, bits)
    for width, shift, bits in ((16, 8, 2012), (32, 16, 4208)):
        yield _unary(f"ARS({width},{shift})", Ars(COUNT, width, shift, KIND), width, bits, judged=False)
    shipped, swapped = Sirnn, SirnnSwapped
    for columns, judged, rows in (
        (1024, True, ((16, 16, 214.2, shipped), (4, 6, 57.6, shipped))),
        (1024, True, ((16, 16, 180.1, swapped), (4, 6, 38.2, swapped))),
        (256, False, ((16, 16, 54.1, shipped), (8, 8, 22.0, shipped), (4, 6, 15.1, shipped))),
        (256, False, ((16, 16, 46.7, swapped), (8, 8, 19.0, swapped), (4, 6, 10.8, swapped))),
    ):  # fmt: skip
        for weight_bits, in_bits, megabytes, form in rows:
            yield _product(Shape(16, 144, columns, weight_bits), in_bits, megabytes, form, judged)


def measure(case: Case) -> Row:
    """Run both parties in two threads and count."""
    ends = memory_pair(timeout_s=600)
    counted: dict[int, list[int]] = {}
    failures: list[BaseException] = []

    def party(role: int, channel: Channel) -> None:
        try:
            made = Party.start(role, channel, KIND)
            counted[role] = []
            for _, run in case.steps:
                before = channel.counters
                run(made)
                counted[role].append((channel.counters - before).total_bytes)
        except BaseException as error:
            failures.append(error)
            channel.abort("the other party failed")

    threads = [threading.Thread(target=party, args=(role, end)) for role, end in enumerate(ends)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    measured = sum(counted[CLIENT])
    predicted = sum(step.predict_bytes() for step, _ in case.steps)
    value = 8 * measured / COUNT if case.unit == "bits" else measured / 1e6
    return {
        "operator": case.name,
        "unit": "bits/element" if case.unit == "bits" else "MB",
        "measured": round(value, 3),
        "sci": case.sci,
        "difference_percent": round(100 * (value / case.sci - 1), 2),
        "judged": case.judged,
        "measured_bytes": measured,
        "predicted_bytes": predicted,
    }


def _unary(name: str, operator: Any, width: int, sci: float, judged: bool = True) -> Case:
    return Case(name, ((operator, lambda p: operator.run(p, _ring(p, COUNT, width))),), sci, judged=judged)


def _product(shape: Shape, in_bits: int, megabytes: float, form: Any, judged: bool) -> Case:
    """W X and the truncation by e bits that SCI's product ends with."""
    wide = shape.weight_bits + in_bits + shape.sum_bits
    product = form(shape, in_bits, wide, KIND, SIRNN)
    truncate = Truncate(shape.d1 * shape.d3, wide, shape.sum_bits, KIND)

    def multiply(party: Party) -> Any:
        half = 1 << (shape.weight_bits - 1)
        weight = np.random.default_rng(0).integers(-half, half, (shape.d1, shape.d2))
        # Shares of X, whose top bit is 0 as after a ReLU.
        x = np.random.default_rng(1).integers(0, 1 << (in_bits - 1), (shape.d2, shape.d3)).astype(np.uint64)
        mask = np.random.default_rng(2).integers(0, 1 << in_bits, x.shape).astype(np.uint64)
        share = mask if party.role == CLIENT else (x - mask) & np.uint64((1 << in_bits) - 1)
        return product.run(party, weight if party.role == SERVER else None, share)

    cut = lambda party: truncate.run(party, _ring(party, shape.d1 * shape.d3, wide))  # noqa: E731
    way = "as shipped" if form is Sirnn else "roles swapped"
    name = f"{shape.d1}x{shape.d2}x{shape.d3} W{shape.weight_bits}A{in_bits} {way}"
    return Case(name, ((product, multiply), (truncate, cut)), megabytes, "MB", judged)


def _ring(party: Party, count: int, width: int) -> Any:
    """Shares of random numbers."""
    generator = np.random.default_rng(10 + party.role)
    return generator.integers(0, 1 << width, count, dtype=np.uint64)


def _bits(party: Party) -> Any:
    return np.random.default_rng(20 + party.role).integers(0, 2, COUNT, dtype=np.uint8)


def rival(options: BenchOptions, say: Say) -> Iterator[Row]:
    """SPU in rings of 64 and 32 bits, then rungs of ours; one picture a query, the first one apart."""
    if options.spu is None:
        raise PrivateError(f"the rival needs a Python with SPU in a throw-away venv: {HOW}")
    for field in (64, 32):
        say(f"SPU, {field}-bit ring")
        settings = {"system": "spu", "ring_bits": field, "images": IMAGES}
        yield options.once("rival", settings, _spu, options.spu, field)
    for rung in rungs_named(options.variants or RUNGS, options.models):
        say(f"thinwire {rung.name}")
        settings = {"system": "thinwire", "rung": rung.name, "images": IMAGES}
        yield options.once("rival", settings, _ours, rung)


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
            BenchServer("", rung.name),
            BenchClient("", "", ""),
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
