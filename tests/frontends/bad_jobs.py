"""What goes wrong between ranks and between calls; two processes of torchrun each.

torchrun --standalone --nproc-per-node 2 tests/frontends/bad_jobs.py JOB FOLDER

Every rank prints "SAID" and what it met.
"""

from __future__ import annotations

import sys
from pathlib import Path
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


def trained_twice(folder: Path) -> str:
    """A Trainer that trains twice: with the model it was given, and with one that it makes (`model_init`)."""
    from transformers import Trainer, TrainingArguments

    from thinwire.transformers import compress

    class Classifier(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, x: Tensor, labels: Tensor) -> dict[str, Tensor]:
            return {"loss": nn.functional.cross_entropy(self.net(x), labels)}

    rows = [{"x": x, "labels": y} for x, y in zip(*examples().tensors, strict=True)]
    args = TrainingArguments(
        str(folder), max_steps=4, per_device_train_batch_size=8, save_strategy="no", logging_steps=2,
        use_cpu=True, report_to=[], disable_tqdm=True,
    )  # fmt: skip
    said = []
    for given in ({"model": Classifier()}, {"model_init": Classifier}):
        trainer = Trainer(args=args, train_dataset=rows, **given)
        compression: Any = compress(trainer, "topk:0.1")
        for _ in range(2):
            trainer.train()
        said.append(f"{compression.compressor.report().steps} steps")
        compression.compressor.close()
    return " | ".join(said)


if __name__ == "__main__":
    jobs = {job.__name__: job for job in (different_front_ends, prepared_twice, trained_twice)}
    torch.set_num_threads(1)
    said = jobs[sys.argv[1]](Path(sys.argv[2]))
    sys.stdout.write(f"SAID {said}\n")
    sys.stdout.flush()
