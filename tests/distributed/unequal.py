"""Ranks with unequal numbers of threads: do their replicas stay equal? The long form:

    python tests/distributed/unequal.py --runs 200

trains every codec of the catalog so many times with odd layer sizes on two ranks, one with 1 thread and one
with 4, and counts the runs after which the parameters had the same bits on both.
"""

from __future__ import annotations

import argparse
import time

import torch
import torch.distributed as dist
from launch import Server, Team
from torch import Tensor, nn
from training import batch, fit, wrap

THREADS = (1, 4)
STEPS = 8
CODECS = {
    "dense": "dense",
    "fp16": "fp16",
    "bf16": "bf16",
    "terngrad": "terngrad",
    "qsgd": "qsgd:4",
    "natural": "natural",
    "rangefloat": "rangefloat:8",
    "sign": "sign",
    "topk": "topk:0.05",
    "dgc": "dgc:0.05,warmup=3",
    "gradiveq": "gradiveq:8,slice=64,sample=2,compress=3,layers=all",
    "powersgd": "powersgd:4",
    "fourier": "fourier >> qsgd:8",
    "dct": "dct >> topk:0.15 >> rangefloat:10",
    "fft": "fft:0.85",
    "rotate": "rotate:256 >> qsgd:4",
    "rotated": "rotated",
    "sparseloco": "sparseloco",
    "bins": "bins",
}


def odd_net(seed: int) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(131, 67), nn.ReLU(), nn.Linear(67, 131), nn.ReLU(), nn.Linear(131, 261)
    return nn.Sequential(*layers, nn.ReLU(), nn.Linear(261, 10))


def train(codec: str, run: int) -> Tensor:
    """The parameters after a few steps; which rank has how many threads changes with the run."""
    torch.set_num_threads(THREADS[(dist.get_rank() + run) % len(THREADS)])
    try:
        with wrap(odd_net(run), codec, ddp={"bucket_cap_mb": 0.2}) as it:
            assert it.compressor is not None
            it.compressor.check_optimizer(torch.optim.SGD(it.model.parameters(), lr=0.1))  # dgc wants it
            fit(it.model, STEPS, make_batch=lambda step: batch(100 * run + step, 131))
            return it.parameters()
    finally:
        torch.set_num_threads(1)


def replicas_are_equal(team: Team, codec: str, run: int) -> bool:
    first, *others = team.run(train, codec, run)
    return all(torch.equal(first, other) for other in others)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=200)
    parser.add_argument("--codecs", nargs="*", default=list(CODECS), choices=list(CODECS), metavar="NAME")
    asked = parser.parse_args()
    with Server() as server, Team(server, len(THREADS), timeout_s=60.0) as team:
        for name in asked.codecs:
            begin = time.perf_counter()
            equal = sum(replicas_are_equal(team, CODECS[name], run) for run in range(asked.runs))
            took = time.perf_counter() - begin
            print(f"{name:12} equal in {equal} of {asked.runs} runs, {took:.0f} s", flush=True)


if __name__ == "__main__":
    import unequal  # ranks look `train` up by the name of its module, which must not be __main__

    unequal.main()
