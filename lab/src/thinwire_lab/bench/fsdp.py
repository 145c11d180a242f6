"""Steps of a sharded transformer, plain and compressed: what runs in every worker, and the rows.

Started as `python -m thinwire_lab.bench.fsdp JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard

import thinwire as tw
from thinwire_lab.bench.cell import timed
from thinwire_lab.models import CharTransformer
from thinwire_lab.net.workers import join, leave
from thinwire_lab.spread import Spread, ratios

Row = dict[str, Any]
PLAIN = "plain"  # FSDP2 as torch has it
CLASSES = 65
WARM_UP_TURNS = 2


@dataclass(frozen=True)
class FsdpJob:
    """The job of the workers. A variant is a codec, with weights= behind it if they are compressed too."""

    variants: tuple[str, ...]
    width: int
    depth: int
    batch: int
    length: int
    repeats: int
    rate: str


@dataclass
class ShardedVariant:
    """A model under FSDP2, its optimizer and its batch; what was measured of it."""

    name: str
    reshard: bool
    net: nn.Module
    compressor: Any
    optimizer: torch.optim.Optimizer
    x: Tensor
    loss: Tensor | None = None
    times: list[float] = field(default_factory=list)
    sent: list[float] = field(default_factory=list)
    gradient_bytes: float = 0.0

    @property
    def title(self) -> str:
        return f"{self.name}, {'resharded' if self.reshard else 'kept'}"

    def forward(self) -> None:
        logits = self.net(self.x).flatten(0, -2)
        self.loss = nn.functional.cross_entropy(logits, self.x.flatten())

    def backward(self) -> None:
        assert self.loss is not None
        torch.autograd.backward(self.loss)

    def update(self) -> None:
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.loss = None

    def step(self) -> None:
        self.forward()
        self.backward()
        self.update()


def variant_of(name: str, reshard: bool, job: FsdpJob) -> ShardedVariant:
    """The net in units of a block each; the root keeps its weights, as torch's default is."""
    torch.manual_seed(0)
    net = CharTransformer(CLASSES, width=job.width, heads=job.width // 64, depth=job.depth)
    for block in net.blocks:
        fully_shard(block, reshard_after_forward=reshard)
    fully_shard(net, reshard_after_forward=reshard)
    codec, _, weights = name.partition(" weights=")
    options: dict[str, Any] = {"weights": weights, "keep_weights": True} if weights else {}
    compressor = None if name == PLAIN else tw.compress(net, codec, **options)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
    draw = torch.Generator().manual_seed(dist.get_rank())
    x = torch.randint(0, CLASSES, (job.batch, job.length), generator=draw)
    return ShardedVariant(name, reshard, net, compressor, optimizer, x)


def main(path: Path) -> None:
    """Every worker: all variants take turns, one step each; rank 0 prints one row per variant."""
    values = json.loads(path.read_text())
    job = FsdpJob(**{**values, "variants": tuple(values["variants"])})
    join(path)
    made = [variant_of(name, reshard, job) for reshard in (True, False) for name in job.variants]
    for turn in range(job.repeats + WARM_UP_TURNS):
        for variant in made:
            if turn < WARM_UP_TURNS:  # without resharding a backward pass sends nothing but gradients
                variant.forward()
                variant.gradient_bytes = timed(variant.backward)[1]
                variant.update()
                continue
            seconds, nbytes = timed(variant.step)
            variant.times.append(seconds)
            variant.sent.append(nbytes)
        if dist.get_rank() == 0:
            total = job.repeats + WARM_UP_TURNS
            print(json.dumps({"row": "turn", "turn": turn + 1, "of": total}), flush=True)
    if dist.get_rank() == 0:
        for row in _rows(job, made):
            print(json.dumps({"row": "result", **row}), flush=True)
    for variant in made:
        if variant.compressor is not None:
            variant.compressor.close()
    leave()


def _rows(job: FsdpJob, made: list[ShardedVariant]) -> Iterator[Row]:
    for reshard in (True, False):
        own = [variant for variant in made if variant.reshard is reshard]
        speedups = ratios({variant.name: variant.times for variant in own}, PLAIN)
        for variant in own:
            spread, speedup = Spread.of(1e3 * s for s in variant.times), speedups[variant.name]
            plan = None if variant.compressor is None else variant.compressor.plan
            numel = sum(p.numel() for p in variant.net.parameters())
            least = (dist.get_world_size() - 1) / dist.get_world_size() * 4 * numel
            yield {
                "variant": variant.name,
                "reshard_after_forward": reshard,
                "hosts": dist.get_world_size(),
                "rate": job.rate,
                "parameters": numel,
                "step_ms": spread.median,
                "step_ms_quartiles": spread.quartiles,
                "speedup": speedup.median,
                "speedup_quartiles": speedup.quartiles,
                "bytes_per_step": Spread.of(variant.sent).median,
                "backward_bytes": variant.gradient_bytes,
                "gradient_ratio": least / variant.gradient_bytes if variant.gradient_bytes else 0.0,
                "planned_gradient_bytes": None if plan is None else plan.step_bytes(),
                "planned_weights_bytes": None if plan is None else plan.weights_step_bytes,
            }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
