"""Injects faults into FSDP2 runs and into local steps, 3 ranks each, and writes down what they led to.

    python tests/distributed/faults_reach.py                        all 60, those that have no line yet
    python tests/distributed/faults_reach.py --seed 7               one of them; no record

Every injection is one JSON line of docs/records/faults-reach.jsonl; all of it follows from its seed.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faulty import Ended
from faulty_reach import STEPS, ReachFault, run_reach
from launch import Gone, Hang, Server, Team
from verdict import Verdict, blamed, table, write_table

WORLD = 3
STOP_S, LONG_S = (
    8.0,
    120.0,
)  # of the process group: where it must run out, and where nobody should wait so long
PATIENCE_S = 120.0  # an answer that takes longer is a hang
COUNT = 60
RECORD = Path(__file__).parents[2] / "docs/records/faults-reach.jsonl"
MARKS = (
    "<!-- faults of FSDP2 and local steps: begin, made by tests/distributed/faults_reach.py -->\n",
    "<!-- faults of FSDP2 and local steps: end -->\n",
)
KINDS = {
    "kill": "kill -9",
    "exit": "os._exit",
    "raise": "an error in the script",
    "stop": "SIGSTOP",
    "nan": "a NaN on one rank",
}
CODECS = {
    "fsdp": ("qsgd:4", "terngrad", "dense", "qsgd:4 weights=qsgd:8", "terngrad weights=difference >> qsgd:4"),
    "local": ("qsgd:4", "sparseloco", "dense", "topk:0.1", "terngrad"),
}


def fault_of(seed: int) -> ReachFault:
    chance = random.Random(f"reach {seed}")
    kind, door = list(KINDS)[seed % len(KINDS)], ("fsdp", "local")[seed // len(KINDS) % 2]
    places = ("forward", "backward", "between") if door == "fsdp" else ("forward", "backward", "before sync")
    return ReachFault(
        seed,
        kind,
        door,
        chance.choice(CODECS[door]),
        chance.choice(places),
        chance.randrange(WORLD),
        chance.randrange(1, STEPS - 3),
    )


def inject(server: Server, fault: ReachFault) -> Verdict:
    with Team(server, WORLD, STOP_S if fault.kind == "stop" else LONG_S) as team:
        struck = time.monotonic()
        team.start(run_reach, fault)
        if fault.kind == "nan":
            return judge_nan(fault, struck, team.collect(timeout_s=PATIENCE_S))
        ranks = [rank for rank in range(WORLD) if rank != fault.victim]
        return judge(fault, struck, team.collect(ranks, PATIENCE_S))


def judge(fault: ReachFault, struck: float, answers: list[Any]) -> Verdict:
    """Every survivor must name the victim, and nobody else."""
    texts = [a.failure.text if isinstance(a, Ended) and a.failure else repr(a) for a in answers]
    wrong = [text for text in texts if blamed(text) != {fault.victim}]
    outcome = "bad: not named" if wrong else "named"
    if any(isinstance(answer, Gone) for answer in answers):
        outcome = "bad: a survivor died"
    verdict = _verdict(fault, struck, answers, outcome)
    verdict.survivors, verdict.named = len(answers), len(answers) - len(wrong)
    verdict.said = (wrong or texts)[0][:400]
    return verdict


def judge_nan(fault: ReachFault, struck: float, answers: list[Any]) -> Verdict:
    """All ranks lose that step (or round), go on, and end with the same bits."""
    fine = all(isinstance(a, Ended) and a.failure is None for a in answers)
    fine = fine and len({a.bits for a in answers}) == 1
    verdict = _verdict(fault, struck, answers, "skipped everywhere" if fine else "bad: not skipped alike")
    verdict.said = "" if fine else repr(answers)[:400]
    return verdict


def _verdict(fault: ReachFault, struck: float, answers: list[Any], outcome: str) -> Verdict:
    ended = [answer for answer in answers if isinstance(answer, Ended)]
    seconds = round(max((answer.at - struck for answer in ended), default=0.0), 2)
    hangs = sum(isinstance(answer, Hang) for answer in answers)
    return Verdict(fault.kind, fault.seed, str(fault), outcome, hangs=hangs, seconds=seconds)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, help="only this injection, without a record")
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--record", type=Path, default=RECORD)
    asked = parser.parse_args()
    lines = asked.record.read_text().splitlines() if asked.record.exists() else []
    done = {json.loads(line)["seed"] for line in lines}
    seeds = [seed for seed in range(asked.count) if seed not in done] if asked.seed is None else [asked.seed]
    with Server() as server:
        for seed in seeds:
            verdict = inject(server, fault_of(seed))
            print(f"{seed} {verdict.kind}: {verdict.outcome} {verdict.what} {verdict.seconds} s", flush=True)
            if asked.seed is not None or verdict.outcome.startswith("bad"):
                print(f"   {verdict.said}", flush=True)
            if asked.seed is None:
                with asked.record.open("a") as file:
                    file.write(json.dumps(asdict(verdict)) + "\n")
    if asked.seed is None:
        text = table(asked.record, KINDS)
        print(text)
        if asked.record == RECORD:
            write_table(text, MARKS)


if __name__ == "__main__":
    main()
