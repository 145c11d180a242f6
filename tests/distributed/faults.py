"""Injects faults into small trainings and writes down what every one of them led to.

    python tests/distributed/faults.py --short                      about 40 injections, two minutes
    python tests/distributed/faults.py                              the long form, over 300
    python tests/distributed/faults.py --table                      only the table in reliability.md

Every injection is one JSON line of docs/records/faults.jsonl: its kind and seed (everything else about it
follows from them), what it led to, how many survivors named the right rank, hangs, lost residuals, seconds.
An injection that has its line is not run again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import queue
import random
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from damaged import damaged, full_disk
from faulty import CODECS, ODD_NETS, PAUSE_S, STEPS, Fault, disagree, prepare, train
from hosts import HostServers
from launch import Hang, Server, Team
from verdict import Verdict, judge_alike, judge_fatal, judge_skipped, table, write_table

TIMEOUT_S = 8.0  # of the process group, where it must run out
LONG_S = 600.0  # of a group in which nobody should wait for a timeout: who does has no answer in time
MEETING_S = 100.0  # of a group whose victim may die before the ranks have met: that is seen at the timeout
LINK_TIMEOUT_S = 15.0  # TCP needs up to twice an outage to find out that it is over
PATIENCE_S = 240.0  # an answer that takes longer is a hang; far above what a busy machine needs
PAUSE_MOST_S = 1.5
RUN_S = 1.5  # about what a run takes: signals from outside come within it
RECORD = Path(__file__).parents[2] / "docs/records/faults.jsonl"

Act = Callable[[Server, random.Random, int], Verdict]


def fault_of(kind: str, seed: int, chance: random.Random, world: int | None = None, **more: Any) -> Fault:
    world = world or chance.choice([2, 3, 3, 4])
    known = {"net": chance.choice(["mlp", "mlp", "normed"]), "step": chance.randrange(1, STEPS - 1)}
    victim, codec = chance.randrange(world), chance.choice(CODECS)
    ddp = chance.choice([{}, {}, {}, {"static_graph": True}, {"gradient_as_bucket_view": True}])
    return Fault(kind, seed, world, victim, codec, **{**known, "ddp": ddp, **more})


@contextlib.contextmanager
def running(server: Server, fault: Fault, timeout_s: float = LONG_S) -> Iterator[Team]:
    """A team whose ranks have their model; `train` begins with compress."""
    with Team(server, fault.world, timeout_s) as team:
        team.run(prepare, fault)
        yield team


def survivors(fault: Fault) -> list[int]:
    return [rank for rank in range(fault.world) if rank != fault.victim]


def kill(server: Server, chance: random.Random, seed: int) -> Verdict:
    """kill -9 at a random time, from the call of compress on."""
    fault = fault_of("kill", seed, chance)
    with running(server, fault, MEETING_S) as team:
        team.start(train, fault, False)
        time.sleep(chance.uniform(0, RUN_S))
        team.kill(fault.victim)
        struck = time.monotonic()
        return judge_fatal(fault, struck, team.collect(survivors(fault), PATIENCE_S))


def kill_in_run(server: Server, chance: random.Random, seed: int) -> Verdict:
    """kill -9 at a random time from the first step on: no rank has to find out that another never came."""
    with tempfile.TemporaryDirectory() as folder:
        fault = fault_of("kill in run", seed, chance, begun=f"{folder}/begun")
        with running(server, fault) as team:
            team.start(train, fault, False)
            while not Path(fault.begun).exists():
                time.sleep(0.01)
            time.sleep(chance.uniform(0, STEPS * PAUSE_S))
            team.kill(fault.victim)
            struck = time.monotonic()
            return judge_fatal(fault, struck, team.collect(survivors(fault), PATIENCE_S))


def stop(server: Server, chance: random.Random, seed: int) -> Verdict:
    """SIGSTOP at a random time, for longer than the timeout."""
    fault = fault_of("stop", seed, chance)
    with running(server, fault, TIMEOUT_S) as team:
        team.start(train, fault, False)
        time.sleep(chance.uniform(0, 0.5 * RUN_S))
        team.signal(fault.victim, signal.SIGSTOP)
        struck = time.monotonic()
        return judge_fatal(fault, struck, team.collect(survivors(fault), PATIENCE_S))


def pause(server: Server, chance: random.Random, seed: int) -> Verdict:
    """SIGSTOP for less than the timeout: nothing but time may be lost."""
    fault = fault_of("pause", seed, chance)
    with running(server, fault) as team:
        reference = team.answers(train, fault, False, timeout_s=PATIENCE_S)
        team.run(prepare, fault)
        team.start(train, fault, False)
        time.sleep(chance.uniform(0, RUN_S))
        team.signal(fault.victim, signal.SIGSTOP)
        struck = time.monotonic()
        time.sleep(chance.uniform(0.2, PAUSE_MOST_S))
        team.signal(fault.victim, signal.SIGCONT)
        return judge_alike(fault, struck, reference, team.collect(timeout_s=PATIENCE_S))


def inside(kind: str, place: str) -> Act:
    """The victim ends, or its script fails, at a place of the training loop."""

    def act(server: Server, chance: random.Random, seed: int) -> Verdict:
        deed = chance.choice(["exit", "raise", "kill"])
        fault = fault_of(kind, seed, chance, place=place, deed=deed)
        with running(server, fault) as team:
            struck = time.monotonic()
            team.start(train, fault, True)
            return judge_fatal(fault, struck, team.collect(survivors(fault), PATIENCE_S))

    return act


def spoilt(kind: str) -> Act:
    """NaN or Inf in one element of any gradient under GradScaler: the step is skipped, nothing else."""

    def act(server: Server, chance: random.Random, seed: int) -> Verdict:
        fault = fault_of(kind, seed, chance)
        with running(server, fault) as team:
            struck = time.monotonic()
            return judge_skipped(fault, struck, team.answers(train, fault, True, timeout_s=PATIENCE_S))

    return act


ODD: dict[str, list[Any]] = {
    "codec": ["terngrad:clip=3", "qsgd:2", "topk:0.2", "bf16", "powersgd:1"],
    "buckets": [25.0, 0.02],
    "model": [name for name in ODD_NETS if "dtype" not in name],
    "dtype": [name for name in ODD_NETS if "dtype" in name],
}


def odd(kind: str) -> Act:
    """One rank was started with something else than the others."""

    def act(server: Server, chance: random.Random, seed: int) -> Verdict:
        ddp = chance.choice([{}, {"find_unused_parameters": True}])
        fault = fault_of(kind, seed, chance, deed=str(chance.choice(ODD[kind])), ddp=ddp)
        with Team(server, fault.world, LONG_S) as team:
            struck = time.monotonic()
            return judge_fatal(fault, struck, team.answers(disagree, fault, timeout_s=PATIENCE_S))

    return act


def cut(server: Server, chance: random.Random, seed: int) -> Verdict:
    """The victim's cable is pulled for good."""
    assert isinstance(server, HostServers)
    fault = fault_of("cut", seed, chance, world=len(server.lab.addresses))
    with running(server, fault, LINK_TIMEOUT_S) as team:
        team.start(train, fault, False)
        time.sleep(chance.uniform(0, RUN_S))
        server.lab.plug(fault.victim, connected=False)
        struck = time.monotonic()
        try:
            answers = team.collect(timeout_s=PATIENCE_S)
        finally:
            server.lab.plug(fault.victim, connected=True)
        own = answers.pop(fault.victim)
        verdict = judge_fatal(fault, struck, answers)
        verdict.hangs += isinstance(own, Hang)
        return verdict


def outage(server: Server, chance: random.Random, seed: int) -> Verdict:
    """The victim's cable is pulled for 3 seconds."""
    assert isinstance(server, HostServers)
    fault = fault_of("outage", seed, chance, world=len(server.lab.addresses))
    with running(server, fault, LINK_TIMEOUT_S) as team:
        reference = team.answers(train, fault, False, timeout_s=PATIENCE_S)
        team.run(prepare, fault)
        team.start(train, fault, False)
        time.sleep(chance.uniform(0, RUN_S))
        server.lab.plug(fault.victim, connected=False)
        struck = time.monotonic()
        time.sleep(3.0)
        server.lab.plug(fault.victim, connected=True)
        return judge_alike(fault, struck, reference, team.collect(timeout_s=PATIENCE_S))


def disk(server: Server, chance: random.Random, seed: int) -> Verdict:
    """The disk is full in the middle of saving: the checkpoint before it stays whole."""
    how = chance.choice(["limit", "tmpfs"])
    with Team(server, 1) as team:
        start = time.monotonic()
        told, whole, said = team.run(full_disk, seed, how)[0]
        outcome = (
            "told, the old checkpoint is whole" if told and whole else f"bad: told {told}, whole {whole}"
        )
        return Verdict("disk", seed, f"{how}: {said[:80]}", outcome, seconds=time.monotonic() - start)


def checkpoint(kind: str) -> Act:
    def act(server: Server, chance: random.Random, seed: int) -> Verdict:
        with Team(server, 1) as team:
            start = time.monotonic()
            outcome = team.run(damaged, seed, kind)[0]
            outcome = f"bad: {outcome}" if outcome == "other values" else outcome
            return Verdict(kind, seed, "", outcome, seconds=time.monotonic() - start)

    return act


@dataclass(frozen=True)
class Kind:
    """A kind of fault: what the table calls it, how often the long and the short form inject it."""

    words: str
    act: Act
    long: int
    short: int
    lab: bool = False


KINDS: dict[str, Kind] = {
    "kill": Kind("kill -9 at a random time", kill, 70, 4),
    "kill in run": Kind("kill -9 at a random time of the run", kill_in_run, 10, 1),
    "stop": Kind("SIGSTOP, longer than the timeout", stop, 28, 1),
    "pause": Kind("SIGSTOP, shorter than the timeout", pause, 20, 2),
    "forward": Kind("exit, kill or error in the forward pass", inside("forward", "forward"), 18, 2),
    "backward": Kind("... in the backward pass", inside("backward", "backward"), 18, 2),
    "between": Kind("... between two steps", inside("between", "between"), 18, 2),
    "exchange": Kind("... in the middle of an exchange", inside("exchange", "exchange"), 12, 2),
    "codec": Kind("another codec on one rank", odd("codec"), 14, 2),
    "model": Kind("another model on one rank", odd("model"), 20, 1),
    "dtype": Kind("another dtype on one rank", odd("dtype"), 12, 1),
    "buckets": Kind("another bucket size on one rank", odd("buckets"), 14, 2),
    "nan": Kind("a NaN in any gradient, GradScaler", spoilt("nan"), 24, 3),
    "inf": Kind("an Inf in any gradient, GradScaler", spoilt("inf"), 24, 3),
    "cut": Kind("link down for good (netlab)", cut, 12, 0, lab=True),
    "outage": Kind("link down for 3 s (netlab)", outage, 12, 0, lab=True),
    "disk": Kind("disk full while saving", disk, 12, 2),
    "flipped": Kind("checkpoint with a flipped bit", checkpoint("flipped"), 40, 4),
    "truncated": Kind("checkpoint cut short", checkpoint("truncated"), 16, 2),
}


def inject(server: Server, kind: str, seed: int) -> Verdict:
    return KINDS[kind].act(server, random.Random(f"{kind} {seed}"), seed)


def injected(server: Server, kind: str, seed: int) -> Verdict | None:
    """None if the team could not even start: nothing was injected, and it is tried again another time."""
    try:
        return inject(server, kind, seed)
    except Exception as error:
        print(f"{kind} {seed}: nothing was injected: {error}", flush=True)
        return None


def done_already(record: Path) -> set[tuple[str, int]]:
    if not record.exists():
        return set()
    lines = map(json.loads, record.read_text().splitlines())
    return {(line["kind"], line["seed"]) for line in lines}


def run(jobs: list[tuple[str, int]], record: Path, workers: int) -> None:
    """Runs the jobs on some fork servers side by side; each line is written when its injection is over."""
    waiting: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for job in jobs:
        waiting.put(job)
    writing = threading.Lock()

    def work(make_server: Callable[[], Server], mine: queue.SimpleQueue[tuple[str, int]]) -> None:
        with make_server() as server:
            while not mine.empty():
                with contextlib.suppress(queue.Empty):
                    kind, seed = mine.get_nowait()
                    verdict = injected(server, kind, seed)
                    if verdict is None:
                        continue
                    with writing, record.open("a") as file:
                        file.write(json.dumps(asdict(verdict)) + "\n")
                    print(f"{kind} {seed}: {verdict.outcome}", flush=True)

    in_lab: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
    for _ in range(waiting.qsize()):
        job = waiting.get()
        (in_lab if KINDS[job[0]].lab else waiting).put(job)
    threads = [threading.Thread(target=work, args=(Server, waiting)) for _ in range(workers)]
    if not in_lab.empty():
        threads.append(threading.Thread(target=work, args=(lambda: HostServers(3), in_lab)))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--short", action="store_true", help="some of every kind that needs no root")
    parser.add_argument("--kinds", default=",".join(KINDS), help="only these, separated by commas")
    parser.add_argument("--count", type=int, help="of each kind, instead of the usual number")
    parser.add_argument("--record", type=Path, default=RECORD)
    parser.add_argument("--workers", type=int, default=3, help="injections at the same time")
    parser.add_argument("--table", action="store_true", help="write the table from the record, run nothing")
    asked = parser.parse_args()
    if not asked.table:
        asked.record.parent.mkdir(parents=True, exist_ok=True)
        jobs = [
            (kind, seed)
            for kind in asked.kinds.split(",")
            for seed in range(asked.count or (KINDS[kind].short if asked.short else KINDS[kind].long))
        ]
        random.Random(0).shuffle(jobs)
        done = done_already(asked.record)
        run([job for job in jobs if job not in done], asked.record, asked.workers)
    text = table(asked.record, {name: kind.words for name, kind in KINDS.items()})
    print(text)
    if asked.record == RECORD:
        write_table(text)


if __name__ == "__main__":
    main()
