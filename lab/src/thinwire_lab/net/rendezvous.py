"""The rendezvous: how the workers of a network find each other, and how they part."""

from __future__ import annotations

import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import NoReturn

import torch
import torch.distributed as dist

STORE_FILE = "rendezvous"
PEER_TIMEOUT = timedelta(minutes=10)  # a step over a slow link is long; a dead peer is noticed at once anyway


def join(job_file: Path) -> None:
    """Rendezvous over a file beside the job, one thread a worker: four workers may share two cores."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job_file.resolve().parent / STORE_FILE}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=PEER_TIMEOUT,
    )


def leave() -> NoReturn:
    """Part from the others when all are done, and end this process."""
    dist.barrier()
    dist.destroy_process_group()
    end_process(0)


def end_process(code: int) -> NoReturn:
    """End at once, without taking down the interpreter or the objects that callers still hold.

    Freeing a DDP model after its group was destroyed never returned in 4 of 12 runs on a busy machine, when
    all work was done. Once the interpreter's shut-down met a thread of torch or gloo, and aborted.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
