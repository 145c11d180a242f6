"""How fast the link between two workers is, as thinwire's own group sees it.

Started as `python -m thinwire_lab.net.link_speed JOB_FILE` in every worker.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.distributed as dist

from thinwire.groups.torch import TorchGroup
from thinwire_lab.net.network import LOOPBACK, open_network
from thinwire_lab.net.workers import join, leave, run_workers
from thinwire_lab.spread import Spread

LARGE_BYTES = 8 << 20
REPEATS = 5


@dataclass(frozen=True)
class LinkSpeed:
    """What an all-to-all of one byte and of megabytes between two workers on loopback took."""

    latency_ms: float
    gbit_per_s: float

    def __str__(self) -> str:
        return (
            f"loopback, 2 workers: {self.gbit_per_s:.1f} Gbit/s each way, {self.latency_ms:.2f} ms a "
            "message; this says nothing about your network"
        )


def measure_link() -> LinkSpeed:
    """Starts two workers on this machine and lets them swap."""
    with open_network(None, 2, LOOPBACK) as network:
        rows = run_workers("thinwire_lab.net.link_speed", {}, network, 2)
        (result,) = [row for row in rows if row["row"] == "result"]
    return LinkSpeed(result["latency_ms"], result["gbit_per_s"])


def main(path: Path) -> None:
    """Every worker."""
    join(path)
    group = TorchGroup()
    group.connect()
    small = Spread.of(_swap_s(group, group.size) for _ in range(4 * REPEATS)).median
    large = Spread.of(_swap_s(group, LARGE_BYTES) for _ in range(REPEATS)).median
    sent_bits = 8 * LARGE_BYTES * (group.size - 1) / group.size
    if group.rank == 0:
        speed = LinkSpeed(1e3 * small, sent_bits / max(large - small, 1e-9) / 1e9)
        print(json.dumps({"row": "result", **asdict(speed)}), flush=True)
    leave()


def _swap_s(group: TorchGroup, nbytes: int) -> float:
    send = torch.zeros(nbytes, dtype=torch.uint8).view(group.size, -1)
    receive = torch.zeros_like(send)
    dist.barrier()
    start = time.perf_counter()
    group.all_to_all(send, receive).wait()
    return time.perf_counter() - start


if __name__ == "__main__":
    main(Path(sys.argv[1]))
