"""Micro-benchmarks: encoding and decoding beside `copy_`, and peak memory above that of plain DDP.

`python -m thinwire_lab.bench.micro JOB_FILE` is a worker of the memory bench, started once a hook: a peak
belongs to a process.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

import thinwire as tw
from thinwire.codecs.codec import BoundCodec
from thinwire.codecs.coder import Context
from thinwire.codecs.stage import Learned
from thinwire.kernels import Kernels, backends
from thinwire.tensors import Key, Layout
from thinwire_lab.bench.cell import bench_plan
from thinwire_lab.net.network import open_network
from thinwire_lab.net.workers import join, leave, run_workers
from thinwire_lab.run.ddp_exchange import attach
from thinwire_lab.spread import Spread

Row = dict[str, Any]
WORLD = 4  # whose sums are decoded
BASE = "ddp"
LAYERS, WIDTH = 5, 2408  # 29 million parameters, 116 MB of gradients, five buckets
STEPS = 5  # buckets are rebuilt after the first, errors are measured in it
WORKERS = 2


class CodecOnTensor:
    """One codec on one tensor: what a rank does in a step, without the network."""

    def __init__(self, codec: str, x: Tensor, kernels: Kernels) -> None:
        self.x, self.out = x, torch.zeros_like(x)
        self.bound = self._settled(codec, Context(WORLD, 0, torch.device("cpu"), kernels))
        packer = self.bound.packer
        self.payload = torch.zeros(packer.num_granules * packer.granule_bytes, dtype=torch.uint8)
        self.shared = self.bound.maxima(self._numbers())
        self.encode()
        payloads = self.payload.expand(WORLD, -1).contiguous()
        self.sums = torch.zeros(packer.merged_bytes(packer.num_granules), dtype=torch.uint8)
        packer.merge(payloads, self.shared, self.sums)
        self.payloads = payloads

    def _settled(self, codec: str, context: Context) -> BoundCodec:
        """The codec in the phase in which it sends least, after a step in each earlier phase."""
        plan = bench_plan(codec, self.x.numel(), WORLD)
        learned: Learned = {}
        layout = Layout.packed(entry.spec for entry in plan.entries)
        stretches = plan.stretches()
        timed = min(stretches, key=lambda stretch: stretch.step_bytes)
        for stretch in stretches[: stretches.index(timed)]:
            self.bound = tw.parse(codec).bind(layout, context, stretch.first, learned)
            self.bound.learn(self.bound.finish(self._numbers(), self.out), self.x)
        return tw.parse(codec).bind(layout, context, timed.first, learned)

    def encode(self) -> None:
        """Statistics and packing: all that stands between a gradient and its payload."""
        y = self._numbers()
        self.shared = self.bound.maxima(y)
        self.bound.packer.encode(y, self.shared, Key(0, 0, 0), self.payload)

    def _numbers(self) -> Tensor:
        """The input of the coder. There is only this rank, so its own statistics are what was agreed."""
        y = self.x
        for stage in self.bound.stages:
            y = stage.forward(y, stage.summands(y))
        return y

    def merge(self) -> None:
        self.bound.packer.merge(self.payloads, self.shared, self.sums)

    def decode(self) -> None:
        numbers = self.bound.decoded(self.out)
        self.bound.packer.decode(self.sums.unsqueeze(0), self.shared, numbers)
        self.bound.finish(numbers, self.out)


def bench_kernels(
    codecs: Sequence[str], numel: int, repeats: int, kernels: str | None = None
) -> Iterator[Row]:
    """One row per codec; times are medians of turns in which copy_, encode, merge and decode alternate."""
    available = backends()
    chosen = available[kernels] if kernels is not None else next(iter(available.values()))
    torch.set_num_threads(1)
    x = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    target = torch.zeros_like(x)
    for codec in codecs:
        fast = CodecOnTensor(codec, x, chosen)
        calls: dict[str, Callable[[], object]] = {
            "copy": lambda: target.copy_(x),
            "encode": fast.encode,
            "merge": fast.merge,
            "decode": fast.decode,
        }
        times = _turns(calls, repeats)
        slow = CodecOnTensor(codec, x, available["reference"])
        reference = _turns({"encode": slow.encode, "decode": slow.decode}, 2)
        yield _row(codec, numel, chosen.name, fast, times, reference)


def _turns(calls: dict[str, Callable[[], object]], repeats: int) -> dict[str, list[float]]:
    """CPU seconds of this thread, which does all the work: other load on the machine counts less."""
    times: dict[str, list[float]] = {name: [] for name in calls}
    for turn in range(repeats + 1):
        for name, act in calls.items():
            start = time.thread_time()
            act()
            if turn:  # the first turn touches the buffers
                times[name].append(time.thread_time() - start)
    return times


def _row(
    codec: str,
    numel: int,
    kernels: str,
    fast: CodecOnTensor,
    times: dict[str, list[float]],
    reference: dict[str, list[float]],
) -> Row:
    median = {name: Spread.of(values).median for name, values in times.items()}

    def in_copies(name: str) -> float:
        return Spread.of(t / c for t, c in zip(times[name], times["copy"], strict=True)).median

    return {
        "codec": codec,
        "numel": numel,
        "kernels": kernels,
        "bits_per_element": 8 * fast.payload.numel() / numel,
        "copy_ms": 1e3 * median["copy"],
        "encode_x_copy": in_copies("encode"),
        "merge_x_copy": in_copies("merge"),
        "decode_x_copy": in_copies("decode"),
        "encode_x_reference": min(reference["encode"]) / median["encode"],
        "decode_x_reference": min(reference["decode"]) / median["decode"],
    }


@dataclass(frozen=True)
class MemoryJob:
    """The job of the workers."""

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
    """One row per hook, plain DDP first; `gradients_above_ddp` is in sizes of the whole gradient."""
    gradient_bytes = 4 * (LAYERS * WIDTH * WIDTH + 4 * WIDTH + 4)
    base = 0
    for hook in dict.fromkeys([BASE, *hooks]):
        with open_network(None, WORKERS) as network:
            rows = [
                row
                for row in run_workers("thinwire_lab.bench.micro", asdict(MemoryJob(hook)), network, WORKERS)
                if row["row"] == "result"
            ]
        peak = rows[0]["peak_bytes"]
        base = base or peak
        above = (peak - base) / gradient_bytes
        yield {"hook": hook, "peak_bytes": peak, "gradients_above_ddp": above}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
