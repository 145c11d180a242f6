"""PrivQuant's claims, by the records of the private benches."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from thinwire_lab.claims.claim import Claim, Evidence, Judgement, Measured, Recorded, Untestable, graded
from thinwire_lab.records import RecordFile

SIRNN, COPRIV, OURS, OURS_LIKE_FOR_LIKE = "B0", "CoPriv-like", "ours-ot", "S6"
NET = "resnet32"
PAPER_BYTES, PAPER_COPRIV, PAPER_LATENCY = 11.0, 2.8, 8.7
COUNTED = "bytes are counted, and the same in every run: they were predicted to the byte"
SCALED_DOWN = (
    "ResNet-32 on CIFAR-10 pictures, one at a time (paper: ResNets on CIFAR-10, CIFAR-100, Tiny-ImageNet, "
    "ImageNet); rivals in our own implementation of their protocols"
)


def read_records(path: Path) -> Sequence[Measured]:
    """The newest record of every setting of ResNet-32; a repeat counts as a seed."""
    found = {}
    for values in RecordFile(path).read(dict[str, Any]):
        settings = values["settings"]
        if settings.get("net") == NET:
            own = Measured(settings, int(settings.get("repeat", 0)), values["result"])
            found[json.dumps(settings, sort_keys=True)] = own
    return list(found.values())


def read_latencies(path: Path) -> Sequence[Measured]:
    """Those on the LAN, of repeats in which both sides were run."""
    lan = [
        o for o in read_records(path) if (o.settings["rate"], o.settings["round_trip_ms"]) == ("320mbit", 2)
    ]
    repeats = [{o.seed for o in lan if o.settings["rung"] == rung} for rung in (SIRNN, OURS)]
    return [one for one in lan if one.seed in repeats[0] & repeats[1]]


def judge_bytes(evidence: Evidence) -> Judgement:
    """Reproduced if 11 is reached with the same oblivious transfers on both sides."""
    sirnn, same, ours = (
        evidence.where(rung=rung).result("bytes").mean for rung in (SIRNN, OURS_LIKE_FOR_LIKE, OURS)
    )
    measured = (
        f"{sirnn / same:.1f}x fewer bytes than SiRNN at 16 bits with the same oblivious transfers, "
        f"{sirnn / ours:.1f}x with ours"
    )
    return Judgement(measured, graded(sirnn / same >= PAPER_BYTES, sirnn / same > 1))


def judge_copriv(evidence: Evidence) -> Judgement:
    """At best partly: the rival is computed, and lacks its pruning."""
    copriv, same = (evidence.where(rung=rung).result("bytes").mean for rung in (COPRIV, OURS_LIKE_FOR_LIKE))
    measured = f"{copriv / same:.1f}x fewer bytes than a CoPriv-like baseline"
    return Judgement(
        measured,
        graded(False, copriv / same >= PAPER_COPRIV),
        "its bytes are computed, not sent, and it prunes no ReLU",
    )


def judge_latency(evidence: Evidence) -> Judgement:
    """Reproduced if 8.7 is reached in every repetition."""
    sirnn, ours = (evidence.where(rung=rung).result("seconds") for rung in (SIRNN, OURS))
    factors = [a / b for a, b in zip(sirnn.values, ours.values, strict=True)]
    measured = (
        f"{min(factors):.1f}x to {max(factors):.1f}x ({sirnn.mean:.0f} s against {ours.mean:.1f} s) at 320 "
        "Mbit/s and 2 ms"
    )
    return Judgement(measured, graded(min(factors) >= PAPER_LATENCY, min(factors) > 1))


LADDER = Recorded("private-ladder.jsonl", "thinwire private bench ladder --nets resnet32", read_records)
CLAIMS = (
    Claim(
        id="privquant-communication",
        paper="PrivQuant",
        place="abstract",
        text="Private inference sends 11 times fewer bytes than SiRNN.",
        scaled_down=SCALED_DOWN,
        study=LADDER,
        judge=judge_bytes,
        why_no_seeds=COUNTED,
    ),
    Claim(
        id="privquant-copriv",
        paper="PrivQuant",
        place="abstract",
        text="Private inference sends 2.8 times fewer bytes than CoPriv.",
        scaled_down=SCALED_DOWN,
        study=LADDER,
        judge=judge_copriv,
        why_no_seeds=COUNTED,
    ),
    Claim(
        id="privquant-latency",
        paper="PrivQuant",
        place="abstract",
        text="Private inference takes 8.7 times less time than SiRNN.",
        scaled_down=(
            f"{SCALED_DOWN}; two parties on one machine, the link shaped by the kernel; repetitions count as "
            "seeds"
        ),
        study=Recorded(
            "private-latency.jsonl",
            "thinwire private bench latency --nets resnet32 --links 320mbit/2",
            read_latencies,
        ),
        judge=judge_latency,
    ),
    Claim(
        id="privquant-coinn",
        paper="PrivQuant",
        place="abstract",
        text="Private inference sends 2.5 times fewer bytes than COINN.",
        scaled_down="nothing was run",
        study=Untestable(
            "COINN uses garbled circuits and factored weights, and is published as binaries only"
        ),
        judge=judge_bytes,
    ),
)
