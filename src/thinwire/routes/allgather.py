"""Route allgather: everybody gets every payload and merges by itself. Traffic grows with the world."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thinwire.coders.base import Merge, Packer
from thinwire.groups.base import gather_bytes
from thinwire.routes.base import Journey, Message, Route, aligned, encode_all


class AllGather(Route):
    """One all-gather per message; payloads merge in rank order on every rank, so all get the same bits."""

    name = "allgather"
    takes = frozenset({Merge.INT, Merge.GATHER})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return aligned(packer.num_granules * packer.granule_bytes)

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return gather_bytes(self.payload_bytes(packer, world), world)

    def reduce(self, messages: Sequence[Message], journey: Journey) -> None:
        for part, message in enumerate(messages):
            encode_all(message, journey.clock, part)
            self._reduce_one(message, journey, part)

    def _reduce_one(self, message: Message, journey: Journey, part: int) -> None:
        group, scratch, clock = journey.group, journey.scratch, journey.clock
        with clock.stage("travel", part):
            send = message[0].payload if len(message) == 1 else torch.cat([p.payload for p in message])
            received = scratch.take("gathered", send.numel() * group.size).view(group.size, -1)
            group.gather(send, received).wait()
        start = 0
        for parcel in message:
            packer = parcel.packer
            with clock.stage("merge", part):
                end = start + packer.num_granules * packer.granule_bytes
                sums = scratch.take("sums", packer.sum_bytes(packer.num_granules))
                parcel.merge(received[:, start:end], sums)
                start += parcel.payload.numel()
            with clock.stage("decode", part):
                parcel.decode(sums.unsqueeze(0))
