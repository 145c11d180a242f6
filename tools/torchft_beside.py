"""torchft's DiLoCo beside tw.DiLoCo on a CPU: the same net, examples, AdamW, outer step, 4 workers over gloo.

torchft is no dependency. Put it into a folder of its own, with no other torch:
    pip install --no-deps --target DIR torchft==0.2.0
    pip install --target DIR opentelemetry-exporter-otlp-proto-http opentelemetry-sdk opentelemetry-api
    PYTHONPATH=DIR .venv/bin/python tools/torchft_beside.py DATA     # the folder of data sets; a few minutes
"""

from __future__ import annotations

import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import torch
from torch import nn
from torch.distributed import TCPStore
from torchft.coordination import LighthouseServer
from torchft.local_sgd import DiLoCo
from torchft.manager import Manager
from torchft.process_group import ProcessGroupGloo

from thinwire_lab.data import load_task
from thinwire_lab.data.task import ExampleOrder, Task
from thinwire_lab.models import model_card
from thinwire_lab.run.local_trainer import VirtualLocalTrainer
from thinwire_lab.run.observers import Nobody, evaluate
from thinwire_lab.run.recipe import Recipe, shakespeare_long
from thinwire_lab.run.trainer import make_optimizer

WORKERS, STEPS, EVERY, SEED = 4, 120, 30, 7
OUTER_LR, OUTER_MOMENTUM = 0.9, 0.5
OURS = ("dense", "qsgd:4")
WAIT = timedelta(seconds=300)  # 4 workers may share one slow core


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("name the folder of data sets: torchft_beside.py DATA")
    torch.set_num_threads(1)  # as every worker has
    task = load_task("shakespeare", Path(sys.argv[1]))
    theirs = with_torchft(recipe_of("dense"), task)
    print(f"{'torchft 0.2.0, fp32':24} loss {loss_of(theirs, task):.4f}", flush=True)
    for codec in OURS:
        ours = with_thinwire(recipe_of(codec), task)
        pairs = zip(ours.parameters(), theirs.parameters(), strict=True)
        apart = max((a - b).abs().max().item() for a, b in pairs)
        told = f"loss {loss_of(ours, task):.4f}, parameters at most {apart:.1e} from torchft's"
        print(f"{f'tw.DiLoCo, {codec}':24} {told}", flush=True)


def recipe_of(codec: str) -> Recipe:
    text = f"{codec} @ every={EVERY} outer={OUTER_LR}/{OUTER_MOMENTUM}"
    return replace(shakespeare_long(), codec=text, steps=STEPS, seed=SEED, workers=WORKERS)


def with_thinwire(recipe: Recipe, task: Task) -> nn.Module:
    trainer = VirtualLocalTrainer(recipe, task)
    for _ in trainer.steps(0, STEPS):
        pass
    trainer.settle()
    trainer.close()
    return trainer.net


def with_torchft(recipe: Recipe, task: Task) -> nn.Module:
    """Every worker is a replica group of its own, as in torchft's tests."""
    lighthouse = LighthouseServer(bind="[::]:0", min_replicas=WORKERS, join_timeout_ms=60_000)
    order = ExampleOrder(len(task.train), recipe.batch, WORKERS, recipe.seed)
    nets = [model_card(recipe.model).build(recipe.seed, task.classes) for _ in range(WORKERS)]
    ends = threading.Barrier(WORKERS)

    def work(rank: int) -> None:
        net = nets[rank]
        store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
        manager = Manager(
            pg=ProcessGroupGloo(timeout=WAIT),
            load_state_dict=net.load_state_dict,
            state_dict=net.state_dict,
            min_replica_size=WORKERS,
            use_async_quorum=False,
            init_sync=False,  # all begin with the same weights
            timeout=WAIT,
            quorum_timeout=WAIT,
            rank=0,
            world_size=1,
            store_addr="localhost",
            store_port=store.port,
            lighthouse_addr=lighthouse.address(),
            replica_id=f"worker_{rank}",
            hostname="localhost",
        )
        inner = make_optimizer(net, recipe)
        outer = torch.optim.SGD(net.parameters(), lr=OUTER_LR, momentum=OUTER_MOMENTUM, nesterov=True)
        with DiLoCo(manager, [net], inner, outer, sync_every=EVERY):
            for step, indices in enumerate(order.batches(rank, 0, STEPS)):
                for group in inner.param_groups:
                    group["lr"] = recipe.lr_at(step, STEPS)
                x, y = task.batch(task.train, indices)
                inner.zero_grad()
                torch.autograd.backward(task.loss(net(x), y))
                inner.step()
        ends.wait()
        manager.shutdown(wait=False)

    with ThreadPoolExecutor(WORKERS) as pool:
        list(pool.map(work, range(WORKERS)))
    lighthouse.shutdown()
    return nets[0]


def loss_of(net: nn.Module, task: Task) -> float:
    return evaluate(net, task, Nobody(), [0.0]).test_loss


if __name__ == "__main__":
    main()
