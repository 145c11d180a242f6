"""A codec of your own, in your own module: nothing in thinwire changes.

torchrun --standalone --nproc-per-node 2 examples/own_codec.py

`Byte` sends every number as one byte: x becomes round(levels * x / max|x|), with one max|x| for each tensor.
Rounding is biased, so it asks for error feedback (`memory`): what was rounded away is added to the next
gradient. Sizes are known before any data exist, and the plan shows them.
"""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw


@dataclass(frozen=True)
class Byte(tw.Coder):
    """The options, and how payloads of several ranks become one: each is decoded by itself (GATHER)."""

    merge = tw.Merge.GATHER
    feedback = "residual"

    levels: int = tw.option(127, int, "a whole number from 1 to 127")

    def __post_init__(self) -> None:
        if not 1 <= self.levels <= 127:
            raise tw.ThinwireError(f"Byte: levels={self.levels} does not fit a byte: take 1 to 127")

    def bind(self, layout: tw.Layout, context: tw.Context) -> "BytePacker":
        return BytePacker(self, layout.units(1 << 20), context)


class BytePacker(tw.GatherPacker):
    """The coder once it knows the tensors of a lane: 4 bytes of scale for each, then a byte a number."""

    def __init__(self, coder: Byte, layout: tw.Layout, context: tw.Context) -> None:
        self.coder, self.scale_bytes = coder, 4 * len(layout.specs)
        super().__init__(layout, context, self.scale_bytes + layout.numel)

    def rebind(self, layout: tw.Layout) -> "BytePacker":
        """The same for other tensors: a lane is cut into parts that travel while others are encoded."""
        return BytePacker(self.coder, layout, self.context)

    def encode(self, x: Tensor, shared: Tensor, key: tw.Key, payload: Tensor) -> None:
        scales, end = x.new_zeros(len(self.layout.specs)), self.scale_bytes
        for i, piece in enumerate(self.layout.slices):
            scales[i] = x[piece].abs().max() if x[piece].numel() else 0.0  # NaN if one of them is
            codes = (x[piece] / scales[i] * self.coder.levels).nan_to_num().round().to(torch.int8)
            payload[end : end + codes.numel()] = codes.view(torch.uint8)
            end += codes.numel()
        payload[: self.scale_bytes] = scales.view(torch.uint8)
        payload[end:] = 0  # padding

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        """x = the mean over the ranks (rows of `payloads`), added in their order."""
        scales = payloads[:, : self.scale_bytes].contiguous().view(torch.float32) / self.coder.levels
        codes, end = payloads.view(torch.int8), self.scale_bytes
        for i, piece in enumerate(self.layout.slices):
            numel = piece.stop - piece.start
            total = torch.zeros(numel, device=x.device)
            for rank in range(len(payloads)):
                total += codes[rank, end : end + numel] * scales[rank, i]
            x[piece] = total / len(payloads)
            end += numel


def train() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    with tw.compress(model, Byte(levels=100)) as compressor:
        for step in range(40):
            x = torch.randn(64, 64, generator=torch.Generator().manual_seed(2 * step + dist.get_rank()))
            optimizer.zero_grad()
            loss = (model(x).squeeze(1) - x[:, 0] * x[:, 1].sign()).square().mean()
            loss.backward()  # type: ignore[no-untyped-call]
            optimizer.step()
            if dist.get_rank() == 0 and step % 10 == 0:
                print(f"step {step}: loss {loss.item():.4f}")
        if dist.get_rank() == 0:
            print(compressor.plan)
            print(compressor.report())


def main() -> None:
    dist.init_process_group("gloo")
    train()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
