"""Route allgather: everybody gets every payload and merges by itself. Traffic grows with the number of ranks."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thinwire.codec import BoundCodec
from thinwire.coders.base import Merge
from thinwire.groups.base import gather_bytes
from thinwire.routes.base import Journey, Parcel, Route, aligned


class AllGather(Route):
    """One all-gather for all lanes; payloads merge in rank order on every rank, so all ranks get the same bits."""

    name = "allgather"
    takes = frozenset({Merge.INT, Merge.GATHER})

    def payload_bytes(self, bound: BoundCodec) -> int:
        return aligned(bound.packer.num_granules * bound.packer.granule_bytes)

    def sent_bytes(self, bounds: Sequence[BoundCodec]) -> int:
        world = bounds[0].place.world if bounds else 1
        return gather_bytes(sum(map(self.payload_bytes, bounds)), world)

    def reduce(self, parcels: Sequence[Parcel], journey: Journey) -> None:
        group, scratch, clock = journey.group, journey.scratch, journey.clock
        with clock.stage("travel"):
            message = parcels[0].payload if len(parcels) == 1 else torch.cat([p.payload for p in parcels])
            received = scratch.take("gathered", message.numel() * group.size).view(group.size, -1)
            group.gather(message, received)
        start = 0
        for parcel in parcels:
            packer = parcel.bound.packer
            with clock.stage("merge"):
                end = start + packer.num_granules * packer.granule_bytes
                sums = scratch.take("sums", packer.sum_bytes(packer.num_granules))
                packer.merge(received[:, start:end], parcel.agreed, sums)
                start += parcel.payload.numel()
            with clock.stage("decode"):
                parcel.decode(sums.unsqueeze(0))
