"""What every bench worker does besides its work: joining the others, and reading its interface's counters."""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from thinwire.errors import LabError


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
        try:
            return read_counters("eth0").tx_payload_bytes
        except LabError:
            return 0
