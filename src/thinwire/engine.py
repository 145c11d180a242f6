"""The engine: runs a plan. One step of one bucket is the straight line in `exchange`."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.clock import Clock
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.groups.metered import Metered
from thinwire.kernels import Kernels, pick
from thinwire.key import Key
from thinwire.lane import Lane
from thinwire.memory import MEMORIES, Memory
from thinwire.plan import Plan
from thinwire.coders.base import Place
from thinwire.routes.base import Journey, Parcel, Route
from thinwire.scratch import Scratch
from thinwire.spec import Layout
from thinwire.statistics import Statistics


@dataclass(frozen=True)
class Bucket:
    """A flat buffer of gradients, the tensors in it, and the loss scale they carry."""

    buffer: Tensor
    layout: Layout
    unit: float = 1.0


class Engine:
    """Exchanges buckets of gradients for their means over all ranks, under one plan.

    Not thread-safe: one thread calls `exchange`, on every rank for the same buckets in the same order.
    """

    def __init__(
        self, plan: Plan, group: Group, device: torch.device, seed: int = 0, kernels: Kernels | None = None
    ) -> None:
        self.plan, self.seed, self.step = plan, seed, 0
        self.group = Metered(group)
        self.clock = Clock()
        self.place = Place(group.size, group.rank, device, kernels or pick(device))
        self.memories: dict[str, Memory] = {name: make() for name, make in MEMORIES.items()}
        self.statistics = Statistics()
        self._journey = Journey(self.group, Scratch(device), self.clock)
        self._lanes: dict[Layout, list[Lane]] = {}
        self.compare_digests(plan.digest, "plans (codec, model, world size or version)")

    def exchange(self, bucket: Bucket) -> None:
        """Replaces the gradients in a bucket by their means over all ranks.

        x       = memory.before(g)            what was held back joins in
        agreed  = max over ranks of offer(x)  what all ranks share BEFORE encoding
        payload = encode(x, agreed)           local, pure, its size known before any data existed
        kept    = x - decode_own(payload)     what was not sent: staged
        mean    = route.reduce(payload)       travel, merge, decode
        commit(kept) if the mean is finite    the mean has the same bits on all ranks, so all ranks decide alike
        """
        lanes = self._lanes_of(bucket.layout)
        values = [self._values(bucket, lane) for lane in lanes]
        for lane, x in zip(lanes, values, strict=True):
            self._memory(lane).before(x, lane.layout, bucket.unit)
        coded = [lane.bound.transform(x) for lane, x in zip(lanes, values, strict=True)]
        agreed = self._agree(lanes, coded)
        payloads = self._encode(lanes, coded, agreed)
        parcels = [
            Parcel(lane.bound, words, payload, x)
            for lane, words, payload, x in zip(lanes, agreed, payloads, values, strict=True)
        ]
        for lane, parcel in zip(lanes, parcels, strict=True):
            self._stage(lane, parcel, bucket.unit)
        for route, members in _by_route(lanes).items():
            route.reduce([parcels[i] for i in members], self._journey)
        for lane, x in zip(lanes, values, strict=True):
            self._finish(lane, x, bucket)

    def end_step(self) -> None:
        """All buckets of a step have been exchanged: the next draws use new keys."""
        self.step += 1
        self.statistics.steps += 1

    def compare_digests(self, digest: bytes, what: str) -> None:
        """A fixed-size exchange, before any whose size depends on the plan: all ranks raise, or none."""
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(self.place.device)
        everyone = torch.empty(self.group.size, mine.numel(), dtype=torch.uint8, device=self.place.device)
        self.clock.current = "compare plans"
        self.group.gather(mine, everyone)
        differing = [rank for rank in range(self.group.size) if not torch.equal(everyone[rank], everyone[0])]
        if differing:
            raise PlanError(
                f"ranks disagree on their {what}: rank 0 and rank(s) {', '.join(map(str, differing))} differ; "
                "build the same model and pass the same codec on every rank"
            )

    def _lanes_of(self, layout: Layout) -> list[Lane]:
        lanes = self._lanes.get(layout)
        if lanes is None:
            self.compare_digests(layout.digest, "bucket layouts")
            lanes = self._lanes[layout] = self.plan.lanes(layout, self.place)
            self.statistics.note_lanes(lanes)
        return lanes

    def _memory(self, lane: Lane) -> Memory:
        return self.memories[lane.memory]

    def _values(self, bucket: Bucket, lane: Lane) -> Tensor:
        """The bucket as this lane's codec takes it: in its own dtype, or as float32."""
        if lane.bound.codec.own_dtype or bucket.buffer.dtype == torch.float32:
            return bucket.buffer
        return self._floats("values", bucket).copy_(bucket.buffer)

    def _floats(self, name: str, bucket: Bucket) -> Tensor:
        return self._journey.scratch.take(name, 4 * bucket.buffer.numel()).view(torch.float32)

    def _agree(self, lanes: list[Lane], coded: list[Tensor]) -> list[Tensor]:
        with self.clock.stage("encode"):
            offers = [lane.bound.offer(y) for lane, y in zip(lanes, coded, strict=True)]
        words = torch.cat(offers) if len(offers) > 1 else offers[0]
        if words.numel():
            with self.clock.stage("agree"):
                self.group.max_(words)
        return list(words.split([offer.numel() for offer in offers]))

    def _encode(self, lanes: list[Lane], coded: list[Tensor], agreed: list[Tensor]) -> list[Tensor]:
        key = Key(self.seed, self.step, self.group.rank)
        payloads = []
        with self.clock.stage("encode"):
            for index, (lane, y, words) in enumerate(zip(lanes, coded, agreed, strict=True)):
                payload = self._journey.scratch.take(f"payload {index}", lane.payload_bytes)
                payload[lane.bound.packer.num_granules * lane.bound.packer.granule_bytes :] = 0
                lane.bound.encode(y, words, key, payload)
                payloads.append(payload)
        return payloads

    def _stage(self, lane: Lane, parcel: Parcel, unit: float) -> None:
        """Keeps back what the payload does not carry, and measures it now and then."""
        measure = self.statistics.wants_error(self.step) and not lane.bound.codec.own_dtype
        if lane.memory == "none" and not measure:
            return
        with self.clock.stage("encode"):
            own = self._journey.scratch.take("own", parcel.x.nbytes).view(parcel.x.dtype)
            lane.bound.decode_own(parcel.payload, parcel.agreed, own)
            self._memory(lane).after(parcel.x, own, lane.layout, unit)
            if measure:
                self.statistics.note_error(parcel.x, own, lane.layout)

    def _finish(self, lane: Lane, x: Tensor, bucket: Bucket) -> None:
        if lane.memory != "none":
            finite = [
                name
                for name, piece in zip(lane.layout.names, lane.layout.slices, strict=True)
                if bool(torch.isfinite(x[piece]).all())
            ]
            self._memory(lane).commit(tuple(finite))
        if x is not bucket.buffer:
            for piece in lane.layout.slices:
                bucket.buffer[piece] = x[piece]


def _by_route(lanes: list[Lane]) -> dict[Route, list[int]]:
    routes: dict[Route, list[int]] = {}
    for index, lane in enumerate(lanes):
        routes.setdefault(lane.route, []).append(index)
    return routes
