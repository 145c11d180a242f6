"""What goes wrong between ranks and between calls; two processes of torchrun each.

torchrun --standalone --nproc-per-node 2 tests/frontends/bad_jobs.py JOB FOLDER

Every rank prints "SAID" and what it met.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from jobs import examples, net
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw
from thinwire.errors import ThinwireError


def different_front_ends(folder: Path) -> str:
    """Rank 0 comes by Accelerate, rank 1 by tw.compress; they train with one codec, and are told of two."""
    from accelerate import Accelerator

    import thinwire.accelerate

    accelerator = Accelerator(cpu=True)
    said = []
    for codecs in (("topk:0.1", "topk:0.1"), ("topk:0.1", "qsgd:4")):
        try:
            if dist.get_rank() == 0:
                made = thinwire.accelerate.compress(accelerator, codecs[0])
                model = accelerator.prepare(net())
                compressor: Any = made.compressor
            else:
                model = DistributedDataParallel(net())
                compressor = tw.compress(model, codecs[1])
            x, y = examples()[:8]
            nn.functional.cross_entropy(model(x), y).backward()
            compressor.close()
            said.append("trained")
        except ThinwireError as error:
            said.append(str(error))
        accelerator._models.clear()
        accelerator.ddp_handler = None
    return " | ".join(said)


def prepared_twice(folder: Path) -> str:
    """An accelerator that wraps a second model."""
    from accelerate import Accelerator

    import thinwire.accelerate

    accelerator = Accelerator(cpu=True)
    compression: Any = thinwire.accelerate.compress(accelerator, "topk:0.1")
    accelerator.prepare(net())
    try:
        accelerator.prepare(net())
    except ThinwireError as error:
        return str(error)
    finally:
        compression.compressor.close()
    return "nothing"


def asked_late_or_twice(folder: Path) -> str:
    """compress for an accelerator that has prepared its model, a second time, and beside another hook."""
    from accelerate import Accelerator
    from accelerate.utils import DDPCommunicationHookType, DistributedDataParallelKwargs

    from thinwire.accelerate import compress

    accelerator = Accelerator(cpu=True)
    accelerator.prepare(net())
    late = refusal(lambda: compress(accelerator))
    accelerator._models.clear()
    compress(accelerator, "topk:0.1")
    twice = refusal(lambda: compress(accelerator, "qsgd:4"))
    accelerator.ddp_handler = DistributedDataParallelKwargs(comm_hook=DDPCommunicationHookType.FP16)
    return f"{late} | {twice} | {refusal(lambda: compress(accelerator))}"


class Classifier(nn.Module):
    """What a Trainer trains; it wants more memory than there is for batches above `most`."""

    def __init__(self, most: int = 8) -> None:
        super().__init__()
        self.net, self.most = net(), most

    def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
        if len(x) > self.most:
            raise RuntimeError("CUDA out of memory.")  # what Accelerate takes for a batch that is too large
        return {"loss": nn.functional.cross_entropy(self.net(x), labels)}


def a_trainer(folder: Path, **options: Any) -> Any:
    """Of 4 steps."""
    from transformers import Trainer, TrainingArguments

    rows = [{"x": x, "labels": y} for x, y in zip(*examples().tensors, strict=True)]
    args = TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=8, save_strategy="no", logging_steps=2,
        use_cpu=True, report_to=[], disable_tqdm=True, auto_find_batch_size=options.pop("find", False),
    )  # fmt: skip
    return Trainer(args=args, train_dataset=rows, **options)


def trained_twice(folder: Path) -> str:
    """A Trainer that trains twice: with the model it was given, and with one that it makes (`model_init`)."""
    from thinwire.transformers import compress

    said = []
    for given in ({"model": Classifier()}, {"model_init": lambda: Classifier()}):
        trainer = a_trainer(folder, **given)
        compression: Any = compress(trainer, "topk:0.1")
        for _ in range(2):
            trainer.train()
        said.append(f"{compression.compressor.report().steps} steps")
        compression.compressor.close()
    return " | ".join(said)


def wrapped_again(folder: Path) -> str:
    """A Trainer that finds its batch too large wraps the model once more, for a smaller one."""
    from thinwire.transformers import compress

    trainer = a_trainer(folder, model=Classifier(most=4), find=True)
    compression: Any = compress(trainer, "topk:0.1")
    trainer.train()
    steps = compression.compressor.report().steps
    compression.compressor.close()
    return f"{steps} steps of {trainer._train_batch_size}"


def wrapped_before(folder: Path) -> str:
    """A Trainer wraps a model that is DDP already; one that has trained plainly has wrapped its own."""
    from thinwire.transformers import compress

    trainer = a_trainer(folder, model=Classifier())
    trainer.train()
    late = refusal(lambda: compress(trainer, "topk:0.1"))
    trainer = a_trainer(folder, model=DistributedDataParallel(Classifier()))
    compress(trainer, "topk:0.1")
    twice = refusal(trainer.train)
    trainer = a_trainer(folder, model=Classifier())
    compress(trainer, "topk:0.1")
    return f"{twice} | {late} | {refusal(lambda: compress(trainer, 'qsgd:4'))}"


def under_fsdp1(folder: Path) -> str:
    """What Lightning's FSDPStrategy makes, which itself wants a GPU."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    from thinwire.lightning import Compression

    dist.init_process_group("gloo")
    model = FullyShardedDataParallel(net(), device_id=torch.device("cpu"))
    trainer: Any = SimpleNamespace(strategy=SimpleNamespace(model=model), world_size=2, optimizers=[])
    module: Any = None
    said = refusal(lambda: Compression("qsgd:4").on_fit_start(trainer, module))
    dist.destroy_process_group()
    return said


def refusal(act: Callable[[], Any]) -> str:
    """The sentence of thinwire's error."""
    try:
        act()
    except ThinwireError as error:
        return str(error)
    return "nothing"


JOBS = (
    different_front_ends, prepared_twice, asked_late_or_twice, trained_twice, wrapped_again, wrapped_before,
    under_fsdp1,
)  # fmt: skip

if __name__ == "__main__":
    jobs = {job.__name__: job for job in JOBS}
    torch.set_num_threads(1)
    said = jobs[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(f"SAID {said}\n")
    sys.stdout.flush()
    os._exit(0)  # see jobs.py
