"""A packer worked by hand: offer, agree, encode, merge and decode for all ranks, without a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

import thinwire as tw
from thinwire.codecs.codec import BoundCodec
from thinwire.codecs.coder import Context, Packer
from thinwire.codecs.stage import Learned
from thinwire.kernels import Kernels, pick
from thinwire.tensors import Key, Layout, Spec

CPU = torch.device("cpu")


def bound(
    text: str,
    layout: Layout,
    world: int = 1,
    rank: int = 0,
    kernels: Kernels | None = None,
    phase_of: int = 0,
    learned: Learned | None = None,
) -> BoundCodec:
    """A codec bound to one rank's tensors, in the phase of step `phase_of`."""
    return tw.parse(text).bind(layout, Context(world, rank, CPU, kernels or pick(CPU)), phase_of, learned)


def one_tensor(numel: int, name: str = "w") -> Layout:
    return Layout.packed([Spec(name, (numel,))])


def transform(codecs: Sequence[BoundCodec], xs: Sequence[Tensor]) -> list[Tensor]:
    """What every rank's coder sees of its x; what the stages offer is added up over the ranks on the way."""
    ys = list(xs)
    for stages in zip(*(codec.stages for codec in codecs), strict=True):
        offers = [stage.summands(y) for stage, y in zip(stages, ys, strict=True)]
        shared = offers[0].clone()
        for offer in offers[1:]:  # in rank order, as the engine adds them
            shared += offer
        ys = [stage.forward(y, shared) for stage, y in zip(stages, ys, strict=True)]
    return ys


def payload_bytes(packer: Packer) -> int:
    return packer.num_granules * packer.granule_bytes


@dataclass(frozen=True)
class Packed:
    """What every rank sends for its x: the agreed words and the payloads."""

    codecs: list[BoundCodec]
    shared: list[Tensor]
    payloads: list[Tensor]

    @property
    def sums(self) -> Tensor:
        """All payloads merged, as one shard."""
        packer = self.codecs[0].packer
        sums = torch.full((packer.merged_bytes(packer.num_granules),), 0xAA, dtype=torch.uint8)
        packer.merge(torch.stack(self.payloads), self.shared[0], sums)
        return sums.unsqueeze(0)

    def mean(self, like: Tensor) -> Tensor:
        """What the merged payloads decode to, in a buffer shaped as `like`."""
        codec, result = self.codecs[0], torch.full_like(like, -12345.0)
        numbers = codec.decoded(result)
        codec.packer.decode(self.sums, self.shared[0], numbers)
        codec.finish(numbers, result)
        return result

    def own(self, rank: int, like: Tensor) -> Tensor:
        """What one rank's payload stands for."""
        codec, result = self.codecs[rank], torch.full_like(like, -12345.0)
        numbers = codec.decoded(result)
        codec.packer.decode_local(self.payloads[rank], self.shared[rank], numbers)
        codec.finish(numbers, result)
        return result


def pack(
    text: str,
    layout: Layout,
    xs: Sequence[Tensor],
    step: int = 0,
    kernels: Kernels | None = None,
    filling: int = 0xAA,
    phase_of: int = 0,
    learned: Learned | None = None,
) -> Packed:
    """Every rank encodes its x. `filling` is what was in the payload buffers before."""
    codecs = [bound(text, layout, len(xs), rank, kernels, phase_of, learned) for rank in range(len(xs))]
    for rank, codec in enumerate(codecs):
        codec.begin(1.0, measured=False, key=Key(seed=0, step=step, rank=rank))
    ys = transform(codecs, xs)
    offers = [codec.maxima(y) for codec, y in zip(codecs, ys, strict=True)]
    shared = torch.stack(offers).amax(0) if offers[0].numel() else offers[0]
    payloads = []
    for rank, (codec, y) in enumerate(zip(codecs, ys, strict=True)):
        payload = torch.full((payload_bytes(codec.packer),), filling, dtype=torch.uint8)
        codec.packer.encode(y, shared, Key(seed=0, step=step, rank=rank), payload)
        payloads.append(payload)
    return Packed(codecs, [shared] * len(xs), payloads)
