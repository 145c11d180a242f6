"""Injects faults into runs under auto and in hierarchies, 4 ranks each, and writes down what they led to.

    python tests/distributed/faults_auto.py --count 40              the first 40 of 200 injections
    python tests/distributed/faults_auto.py                         all 200, those that have no line yet
    python tests/distributed/faults_auto.py --seed 17 --repeat 20   one of them, again and again; no record

Every injection is one JSON line of docs/records/faults-auto.jsonl; all of it follows from its seed. A
survivor's process ends as soon as its error was raised, as a script's would, so that the others meet a rank
that has left.
"""

from __future__ import annotations

import argparse
import itertools
import json
import queue
import random
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from faulty import Ended
from faulty_auto import WORLD, AutoFault, train_auto
from hosts import HostServers
from launch import Gone, Hang, Server, Team
from rank import Leave
from verdict import Verdict, blamed, table, write_table

from thinwire_lab.net.netlab import available

TIMEOUT_S = 25.0  # of the process group: far above what a busy machine needs for a step
PATIENCE_S = 120.0  # an answer that takes longer is a hang
END_S = 60.0  # a process that has answered and takes longer to end hangs
COUNT = 200
RECORD = Path(__file__).parents[2] / "docs/records/faults-auto.jsonl"
MARKS = (
    "<!-- faults under auto: begin, made by tests/distributed/faults_auto.py -->\n",
    ("<!-- faults under auto: end -->\n"),
)

KINDS = {
    "kill": "kill -9",
    "exit": "os._exit",
    "leave": "sys.exit",
    "raise": "an error in the script",
    "stop": "SIGSTOP",
    "nan": "a NaN in a gradient, GradScaler",
}
AUTO_PHASES = (
    "first",
    "warm-up",
    "dense",
    "trial",
    "decided",
    "agreeing",
    "probing",
    "link",
    "switch",
    "connect",
)
FIXED_PHASES = ("first", "rebuilt", "later", "connect")
CALLS = ("agreeing", "probing", "link", "switch")
FIXED = ("terngrad", "topk:0.1", "qsgd:4", "powersgd:2", "fp16", "dense")


def fault_of(seed: int) -> AutoFault:
    """Kinds, phases and hierarchies go round; the rest is drawn."""
    chance = random.Random(f"auto {seed}")
    kind = list(KINDS)[seed % len(KINDS)]
    hierarchy: str | int = ("off", "auto", 2)[seed // len(KINDS) % 3]
    codec = "auto" if hierarchy == "off" or chance.random() < 0.75 else chance.choice(FIXED)
    phases: tuple[str, ...] = AUTO_PHASES if codec == "auto" else FIXED_PHASES
    if kind == "nan":
        phases = tuple(phase for phase in phases if phase not in (*CALLS, "connect"))
    phase = chance.choice(phases)
    places: tuple[str, ...] = ("forward", "backward", "between", "exchange")
    if phase in CALLS:
        places = ("before", "after")
    if kind in ("leave", "raise"):  # what a script does, it does on its own thread
        places = tuple(place for place in places if place != "exchange")
    hosts = 2 if hierarchy == "auto" else 1  # on one host "auto" knows no nodes
    victim, net = chance.randrange(WORLD), chance.choice(["mlp", "normed"])
    return AutoFault(
        seed, kind, phase, chance.choice(places), victim, codec, hierarchy, net, hosts, chance.random() < 0.5
    )


def inject(server: Server, fault: AutoFault) -> Verdict:
    with Team(server, WORLD, TIMEOUT_S) as team:
        struck = time.monotonic()
        team.start(train_auto, fault)
        team.dismiss(Leave(destroy=False, code=1))
        if fault.kind == "nan":
            return judge_nan(fault, struck, team.collect(timeout_s=PATIENCE_S))
        ranks = [rank for rank in range(WORLD) if rank != fault.victim]
        answers = team.collect(ranks, PATIENCE_S)
        verdict = judge(fault, struck, answers)
        ending = [*ranks, *([fault.victim] if fault.kind in ("leave", "raise") else [])]
        stuck = team.still_running(ending, END_S)
        if stuck:
            verdict.hangs += len(stuck)
            verdict.outcome = f"bad: rank {stuck} did not end"
        return verdict


def _verdict(fault: AutoFault, struck: float, answers: list[Any], outcome: str) -> Verdict:
    ended = [answer for answer in answers if isinstance(answer, Ended)]
    seconds = round(max((answer.at - struck for answer in ended), default=0.0), 2)
    hangs = sum(isinstance(answer, Hang) for answer in answers)
    return Verdict(fault.kind, fault.seed, str(fault), outcome, hangs=hangs, seconds=seconds)


def judge(fault: AutoFault, struck: float, answers: list[Any]) -> Verdict:
    """Every survivor must name the victim, and nobody else."""
    texts = [a.failure.text if isinstance(a, Ended) and a.failure else repr(a) for a in answers]
    noted = [
        t if blamed(t) or not isinstance(a, Ended) else _with_notes(a)
        for t, a in zip(texts, answers, strict=True)
    ]
    wrong = [text for text in noted if blamed(text) != {fault.victim}]
    outcome = "bad: not named" if wrong else "named"
    if any(isinstance(answer, Gone) for answer in answers):
        outcome = "bad: a survivor died"
    verdict = _verdict(fault, struck, answers, outcome)
    verdict.survivors, verdict.named = len(answers), len(answers) - len(wrong)
    verdict.said = (wrong or noted)[0][:400]
    return verdict


def _with_notes(answer: Ended) -> str:
    """What is raised by torch itself gets a note in a `with` block (docs/reference/reliability.md)."""
    assert answer.failure is not None
    return answer.failure.trace[answer.failure.trace.rfind(answer.failure.text) :]


def judge_nan(fault: AutoFault, struck: float, answers: list[Any]) -> Verdict:
    """All ranks skip that step, go on, and end with the same bits."""
    fine = all(isinstance(a, Ended) and a.failure is None and a.skipped for a in answers)
    fine = fine and len({a.bits for a in answers}) == 1
    verdict = _verdict(fault, struck, answers, "skipped everywhere" if fine else "bad: not skipped alike")
    verdict.said = "" if fine else repr(answers)[:400]
    return verdict


def injected(server: Server, fault: AutoFault) -> Verdict | None:
    """None if the team could not even start: nothing was injected, and it is tried again another time."""
    try:
        return inject(server, fault)
    except (OSError, EOFError) as error:
        print(f"{fault.seed}: nothing was injected: {error!r}", flush=True)
        return None


def run(faults: list[AutoFault], write: Callable[[Verdict], None], workers: int) -> None:
    """On some fork servers side by side: one for two hosts, the others for this machine."""
    waiting: dict[int, queue.SimpleQueue[AutoFault]] = {1: queue.SimpleQueue(), 2: queue.SimpleQueue()}
    for fault in faults:
        waiting[fault.hosts].put(fault)

    def work(make_server: Callable[[], Server], mine: queue.SimpleQueue[AutoFault]) -> None:
        with make_server() as server:
            for _ in itertools.count():
                try:
                    fault = mine.get_nowait()
                except queue.Empty:
                    return
                verdict = injected(server, fault)
                if verdict is not None:
                    write(verdict)

    threads = [threading.Thread(target=work, args=(Server, waiting[1])) for _ in range(workers - 1)]
    obstacle = available()
    if obstacle is None and not waiting[2].empty():
        threads.append(threading.Thread(target=work, args=(lambda: HostServers(2, per_host=2), waiting[2])))
    elif obstacle is not None:
        print(f"no netlab here ({obstacle}): {waiting[2].qsize()} injections wait for one")
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--seed", type=int, help="this one only, without a line in the record")
    parser.add_argument("--repeat", type=int, default=1, help="with --seed: so many times")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--workers", type=int, default=2, help="injections at the same time")
    parser.add_argument("--table", action="store_true", help="write the table from the record, run nothing")
    asked = parser.parse_args()
    writing = threading.Lock()

    def write(verdict: Verdict) -> None:
        with writing:
            if asked.seed is None:
                with asked.record.open("a") as file:
                    file.write(json.dumps(asdict(verdict)) + "\n")
            print(f"{verdict.seed} {verdict.what}: {verdict.outcome}, {verdict.seconds} s", flush=True)
            if verdict.outcome.startswith("bad"):
                print(f"    {verdict.said}", flush=True)

    if asked.seed is not None:
        run([fault_of(asked.seed)] * asked.repeat, write, asked.workers)
        return
    if not asked.table:
        lines = asked.record.read_text().splitlines() if asked.record.exists() else []
        done = {json.loads(line)["seed"] for line in lines}
        run([fault_of(seed) for seed in range(asked.count) if seed not in done], write, asked.workers)
    text = table(asked.record, KINDS)
    print(text)
    if asked.record == RECORD:
        write_table(text, MARKS)


if __name__ == "__main__":
    main()
