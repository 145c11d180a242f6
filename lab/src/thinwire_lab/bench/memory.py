"""Memory of a training run under several hooks: the peak of every process, above that of plain DDP.

Started as `python -m thinwire_lab.bench.memory JOB_FILE`, once a hook: a peak belongs to a process.
"""

from __future__ import annotations

import json
import resource
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from thinwire_lab.net.network import open_network
from thinwire_lab.net.rendezvous import join, leave
from thinwire_lab.net.workers import run_workers
from thinwire_lab.run.ddp_exchange import attach

Row = dict[str, Any]
BASE = "ddp"
LAYERS, WIDTH = 5, 2408  # 29 million parameters, 116 MB of gradients, five buckets
STEPS = 5  # buckets are rebuilt after the first, errors are measured in it
WORKERS = 2


@dataclass(frozen=True)
class MemoryJob:
    """What the workers are told."""

    hook: str


def main(path: Path) -> None:
    """Every worker: a few steps under one hook; rank 0 prints its peak."""
    job = MemoryJob(**json.loads(path.read_text()))
    join(path)
    net = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)), nn.Linear(WIDTH, 4))
    model = attach(net, job.hook, 0, None).model
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-9)
    x = torch.randn(4, WIDTH, generator=torch.Generator().manual_seed(dist.get_rank()))
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=False)
        torch.autograd.backward(model(x).sum())
        optimizer.step()
    if dist.get_rank() == 0:
        peak = 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(json.dumps({"row": "result", "hook": job.hook, "peak_bytes": peak}), flush=True)
    leave()


def bench_memory(hooks: Sequence[str]) -> Iterator[Row]:
    """A row a hook, plain DDP first; `gradients_above_ddp` counts in gradients of the whole model."""
    gradient_bytes = 4 * (LAYERS * WIDTH * WIDTH + 4 * WIDTH + 4)
    base = 0
    for hook in dict.fromkeys([BASE, *hooks]):
        with open_network(None, WORKERS) as network:
            rows = [
                row
                for row in run_workers("thinwire_lab.bench.memory", asdict(MemoryJob(hook)), network, WORKERS)
                if row["row"] == "result"
            ]
        peak = rows[0]["peak_bytes"]
        base = base or peak
        above = (peak - base) / gradient_bytes
        yield {"hook": hook, "peak_bytes": peak, "gradients_above_ddp": above}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
