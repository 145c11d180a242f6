"""Kills a random rank of a training under torchrun at a random time, again and again; root needed.

    python tests/distributed/kills.py --count 20

2 netlab hosts with 2 processes each train `examples/resume_after_kill.py`. After SIGKILL of one rank torchrun
starts all of them again, and they go on from the last checkpoint. Times are uniform over a run, from the
first process until the last checkpoint of a run without a kill; one that came after the last checkpoint of
its own run is tried again, for nothing is left to train, and torchrun waits for hosts that have ended. The
first three kills hit rank 0 while it saves, so that half a checkpoint is left. Every kill is one JSON line of
docs/records/kills.jsonl: the parameters must be those of the run without a kill.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs/records/kills.jsonl"
SCRIPT = ROOT / "examples/resume_after_kill.py"
RANKS, STEPS, SAVING, PAUSE_S, TRIES = 4, 40, 3, 0.25, 5
SECONDS = 900  # 20 to 30 on an idle machine; under a load of 60 on 2 cores starting twice takes minutes
SHOWN = 12  # lines of a run that failed


def start(checkpoint: Path) -> subprocess.Popen[str]:
    """The training on two hosts; its output is one stream."""
    tools = Path(sys.executable).parent
    hosts = [str(tools / "thinwire"), "netlab", "-n", "2", "--timeout", str(SECONDS), "--"]
    workers = [str(tools / "torchrun"), "--nproc-per-node", "2", "--max-restarts", "3", str(SCRIPT)]
    return subprocess.Popen(
        [*hosts, *workers, str(checkpoint), str(PAUSE_S)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def ranks_of(checkpoint: Path) -> dict[int, int]:
    """The processes that train on this checkpoint, by rank."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if str(checkpoint).encode() not in words or b"torchrun" in b" ".join(words):
                continue
            rank = re.search(rb"(?:^|\0)RANK=(\d+)\0", (folder / "environ").read_bytes())
            if rank is not None and b"TORCHELASTIC_RUN_ID" in (folder / "environ").read_bytes():
                found[int(rank[1])] = int(folder.name)
        except OSError:
            continue  # it is gone
    return found


def undisturbed() -> tuple[set[str], float, float]:
    """What a run ends with, and the seconds until its first process and until its last checkpoint."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint, begun = Path(folder) / "run.pt", time.monotonic()
        training = start(checkpoint)
        while not ranks_of(checkpoint) and training.poll() is None:
            time.sleep(0.01)
        first_s = last_s = time.monotonic() - begun
        saved = 0
        while training.poll() is None:
            if checkpoint.exists() and checkpoint.stat().st_mtime_ns != saved:
                saved, last_s = checkpoint.stat().st_mtime_ns, time.monotonic() - begun
            time.sleep(0.01)
        return outcome(training)[0], first_s, last_s


def outcome(training: subprocess.Popen[str]) -> tuple[set[str], list[str]]:
    """The parameters that the ranks ended with, and the last lines of a run that failed: how far it was."""
    text, _ = training.communicate(timeout=SECONDS + 60)
    if training.returncode != 0:
        print(text[-4000:], file=sys.stderr)
        return {"failed"}, text.splitlines()[-SHOWN:]
    return set(re.findall(r"parameters ([0-9a-f]{16})", text)), []


def disturbed(number: int, first_s: float, last_s: float, seed: int) -> dict[str, Any]:
    """One run with a kill; what it ended with."""
    draws = random.Random(1000 * seed + number)
    saving, rank = number < SAVING, 0 if number < SAVING else draws.randrange(RANKS)
    at_s = draws.uniform(first_s, last_s)
    for tried in range(1, TRIES + 1):
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            training = start(Path(folder) / "run.pt")
            if saving:
                killed = kill_saving(Path(folder) / "run.pt", training, rank, saves=2 * number)
            else:
                killed = kill(Path(folder) / "run.pt", training, rank, begun + at_s * (1 - 0.1 * (tried - 1)))
            killed_s = time.monotonic() - begun
            if not killed:
                training.terminate()
            ended, said = outcome(training)
        if killed:
            break
    told = {"kill": number, "rank": rank, "saving": saving, "tried": tried, "at_s": round(killed_s, 2)}
    run = {"first_s": round(first_s, 2), "last_s": round(last_s, 2)}
    lasted = {"killed": killed, "ended": sorted(ended), "seconds": round(time.monotonic() - begun, 1)}
    return {**told, **run, **lasted, **({"said": said} if said else {})}


def kill(checkpoint: Path, training: subprocess.Popen[str], rank: int, when: float) -> bool:
    """SIGKILL of a rank at a time; whether it was still there."""
    while training.poll() is None:
        victim = ranks_of(checkpoint).get(rank) if time.monotonic() >= when else None
        if victim is not None:
            return hit(victim) and not complete(checkpoint, time.time())
        time.sleep(0.01)
    return False


def complete(checkpoint: Path, before: float) -> bool:
    """Whether the last checkpoint was there by then."""
    if not checkpoint.exists() or checkpoint.stat().st_mtime > before:
        return False
    return bool(torch.load(checkpoint, weights_only=True)["step"] == STEPS)


def kill_saving(checkpoint: Path, training: subprocess.Popen[str], rank: int, saves: int) -> bool:
    """SIGKILL of a rank while it writes a checkpoint, after so many; whether half a one lies there."""
    written, seen = checkpoint.with_suffix(".new"), set[int]()
    while (victim := ranks_of(checkpoint).get(rank)) is None and training.poll() is None:
        time.sleep(0.01)
    while training.poll() is None:
        if checkpoint.exists():
            seen.add(checkpoint.stat().st_mtime_ns)
        if len(seen) >= saves and written.exists():
            was_there = victim is not None and hit(victim)
            time.sleep(0.1)
            return was_there and written.exists()
    return False


def hit(process: int) -> bool:
    """SIGKILL; whether it was there."""
    try:
        os.kill(process, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return True


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=20)
    asked.add_argument("--first", type=int, default=0, help="number of the first kill, to repeat one")
    asked.add_argument("--seed", type=int, default=0)
    asked.add_argument("--record", type=Path, default=RECORD)
    given = asked.parse_args()
    straight, first_s, last_s = undisturbed()
    print(f"undisturbed: {straight}, processes after {first_s:.1f} s, last checkpoint after {last_s:.1f} s")
    wrong = 0
    for number in range(given.first, given.first + given.count):
        found = disturbed(number, first_s, last_s, given.seed)
        found["same_bits"] = found["killed"] and set(found["ended"]) == straight
        wrong += not found["same_bits"]
        print(json.dumps(found), flush=True)
        with given.record.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
    print(f"{given.count - wrong} of {given.count} were hit and ended with the bits of the undisturbed run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
