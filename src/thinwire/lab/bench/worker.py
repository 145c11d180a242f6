"""What every bench worker does besides its work: joining the others, and reading its interface's counters."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist


def join(job_file: Path) -> None:
    """Rendezvous over a file beside the job, one thread a worker: four workers may share two cores."""
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo",
        init_method=f"file://{job_file.parent / 'rendezvous'}",
        rank=int(os.environ["RANK"]),
        world_size=int(os.environ["WORLD_SIZE"]),
        timeout=timedelta(minutes=5),
    )


def leave() -> None:
    dist.barrier()
    dist.destroy_process_group()


class Bytes:
    """Payload bytes sent by this host's interface so far; 0 where it has none of its own (loopback)."""

    @staticmethod
    def read() -> int:
        from thinwire.lab.netlab import read_counters

        if os.environ.get("GLOO_SOCKET_IFNAME") != "eth0":
            return 0
        return read_counters("eth0").tx_payload_bytes


def timed(act: Callable[[], None]) -> tuple[float, float]:
    """The slowest worker's seconds, and the bytes this worker's interface sent (0 without counters)."""
    dist.barrier()
    before = Bytes.read()
    start = time.perf_counter()
    act()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.barrier()  # what is still queued in the kernel leaves before the counters are read
    nbytes = Bytes.read() - before
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item(), float(nbytes)
