"""Kills a random rank of a training under torchrun at a random time, again and again; root needed.

    python tests/distributed/kills.py --count 20

2 netlab hosts with 2 processes each train `examples/resume_after_kill.py`. After SIGKILL of one rank torchrun
starts all of them again, and they go on from the last checkpoint. The first three kills hit rank 0 while it
saves. Every kill is one JSON line of docs/records/kills.jsonl: the parameters must be those of a run that was
not disturbed.
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

ROOT = Path(__file__).parents[2]
RECORD = ROOT / "docs/records/kills.jsonl"
SCRIPT = ROOT / "examples/resume_after_kill.py"
RANKS, SAVING, SECONDS = 4, 3, 300


def start(checkpoint: Path) -> subprocess.Popen[str]:
    """The training on two hosts; its output is one stream."""
    tools = Path(sys.executable).parent
    hosts = [str(tools / "thinwire"), "netlab", "-n", "2", "--timeout", str(SECONDS), "--"]
    workers = [str(tools / "torchrun"), "--nproc-per-node", "2", "--max-restarts", "3", str(SCRIPT)]
    return subprocess.Popen(
        [*hosts, *workers, str(checkpoint)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
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


def outcome(training: subprocess.Popen[str]) -> set[str]:
    """The parameters that the ranks ended with."""
    text, _ = training.communicate(timeout=SECONDS)
    return set(re.findall(r"parameters ([0-9a-f]{16})", text)) if training.returncode == 0 else {"failed"}


def disturbed(number: int, duration_s: float, seed: int) -> dict[str, Any]:
    """One run with a kill; what it ended with."""
    draws = random.Random(1000 * seed + number)
    saving, rank = number < SAVING, draws.randrange(RANKS)
    at_s, begun = draws.uniform(0, duration_s), time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = Path(folder) / "run.pt"
        training = start(checkpoint)
        victim = None
        while victim is None and training.poll() is None:
            if saving and checkpoint.with_suffix(".new").exists():
                victim = ranks_of(checkpoint).get(rank := 0)
            elif not saving and time.monotonic() - begun >= at_s:
                victim = ranks_of(checkpoint).get(rank)
            time.sleep(0 if saving else 0.01)
        if victim is not None:
            os.kill(victim, signal.SIGKILL)
        found = {"kill": number, "rank": rank, "saving": saving, "at_s": round(time.monotonic() - begun, 2)}
        ended = sorted(outcome(training))
    return found | {
        "killed": victim is not None,
        "ended": ended,
        "seconds": round(time.monotonic() - begun, 1),
    }


def main() -> int:
    asked = argparse.ArgumentParser(description=__doc__)
    asked.add_argument("--count", type=int, default=20)
    asked.add_argument("--seed", type=int, default=0)
    given = asked.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        begun = time.monotonic()
        straight = outcome(start(Path(folder) / "run.pt"))
        duration_s = time.monotonic() - begun
    print(f"undisturbed: {straight} in {duration_s:.1f} s")
    wrong = 0
    for number in range(given.count):
        found = disturbed(number, duration_s, given.seed)
        found["same_bits"] = set(found["ended"]) == straight
        wrong += not found["same_bits"]
        print(json.dumps(found), flush=True)
        with RECORD.open("a") as lines:
            lines.write(json.dumps(found) + "\n")
    print(f"{given.count - wrong} of {given.count} ended with the bits of the undisturbed run")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
