"""A training that may be killed at any moment and goes on from its last checkpoint, with the same bits.

torchrun --standalone --nproc-per-node 2 examples/resume_after_kill.py run.pt [SECONDS]

Every few steps rank 0 saves model, optimizer, compressor and the number of the next step in one file. Kill
the processes (kill -9), run the same line again: it goes on, and ends with the parameters of a run that was
never stopped. Error feedback (`feedback="residual"`) keeps what was not sent, which differs by rank:
that is why `state_dict(gather=True)` asks all ranks. SECONDS makes a step as long as that of a larger net.
"""

import hashlib
import os
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

STEPS, EVERY = 40, 5


def batch(step: int, rank: int) -> torch.Tensor:
    """By step and rank alone: a resumed run sees what it would have seen."""
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(2 * step + rank))


def save(path: Path, checkpoint: dict[str, Any]) -> None:
    """The whole file or the old one, never half of it."""
    torch.save(checkpoint, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def train(path: Path, pause_s: float) -> nn.Module:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    model = DistributedDataParallel(net)
    # named: "auto" decides by times, which are others after a kill, and so would be the bits
    with tw.compress(model, "terngrad @ feedback=residual") as compressor:
        first = 0
        if path.exists():
            checkpoint = torch.load(path, weights_only=True)
            net.load_state_dict(checkpoint["model"])
            optimizer.load_state_dict(checkpoint["optimizer"])
            compressor.load_state_dict(checkpoint["compressor"])
            first = checkpoint["step"]
        for step in range(first, STEPS):
            time.sleep(pause_s)
            optimizer.zero_grad()
            (model(batch(step, dist.get_rank())) - 1).square().mean().backward()
            optimizer.step()
            print(f"step {step}", flush=True)
            if (step + 1) % EVERY == 0:
                held = compressor.state_dict(gather=True)  # on all ranks: it is a collective
                if dist.get_rank() == 0:
                    parts = {"model": net.state_dict(), "optimizer": optimizer.state_dict()}
                    save(path, {**parts, "compressor": held, "step": step + 1})
        dist.barrier()  # until the last file is there: launchers cannot start again with those that have left
    return net


def main() -> None:
    if len(sys.argv) not in (2, 3):
        sys.exit("name one file for the checkpoint: resume_after_kill.py run.pt")
    dist.init_process_group("gloo")
    net = train(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) == 3 else 0.0)
    numbers = torch.cat([p.detach().flatten() for p in net.parameters()]).numpy().tobytes()
    print(f"rank {dist.get_rank()}: parameters {hashlib.sha256(numbers).hexdigest()[:16]}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
