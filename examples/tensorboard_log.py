"""What compression does, as curves in TensorBoard: bytes, ratio, seconds by stage, error by layer.

pip install tensorboard
torchrun --standalone --nproc-per-node 2 examples/tensorboard_log.py runs/example
tensorboard --logdir runs
"""

import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

try:
    from torch.utils.tensorboard import SummaryWriter
except ImportError as error:
    sys.exit(f"TensorBoard is not installed ({error}), and this example is about it: pip install tensorboard")

STEPS, EVERY = 30, 5


def write(writer: SummaryWriter, report: tw.Report, loss: float, step: int) -> None:
    """A report tells of all steps so far: bytes and seconds are means over them."""
    writer.add_scalar("training/loss", loss, step)
    for name, value in report.scalars().items():
        writer.add_scalar(name, value, step)


def train(folder: str) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, 8))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    writer = SummaryWriter(folder) if dist.get_rank() == 0 else None  # one rank writes: all send alike
    with tw.compress(model, "terngrad") as compressor:  # named: "auto" has not decided after 30 steps
        for step in range(STEPS):
            draw = torch.Generator().manual_seed(2 * step + dist.get_rank())
            optimizer.zero_grad()
            loss = (model(torch.randn(32, 64, generator=draw)) - 1).square().mean()
            loss.backward()
            optimizer.step()
            if writer is not None and (step + 1) % EVERY == 0:
                write(writer, compressor.report(), loss.item(), step + 1)
    if writer is not None:
        writer.close()
        print(f"curves in {folder}")


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("name one folder for the curves: tensorboard_log.py runs/example")
    dist.init_process_group("gloo")
    train(sys.argv[1])
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
