"""The engine: runs a plan. One step of one bucket is the straight line in `exchange`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import torch
from torch import Tensor

from thinwire.clock import COMPARE, PREPARE, Clock
from thinwire.coders.base import Place
from thinwire.controls.observation import RECORD_BYTES, Observation, read_records
from thinwire.controls.steering import Steering
from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.groups.metered import Metered
from thinwire.groups.ordered import sum_in_order
from thinwire.kernels import Kernels, pick
from thinwire.key import Key
from thinwire.lane import Lane, lanes_digest
from thinwire.memory import Memory, make_memory
from thinwire.plan import Plan
from thinwire.routes.base import Journey, Parcel, Route
from thinwire.scratch import Scratch
from thinwire.spec import Layout
from thinwire.stages.base import Notes
from thinwire.statistics import ERROR_EVERY, Statistics
from thinwire.transit import PartInTransit, Transit


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
        self,
        plan: Plan,
        group: Group,
        device: torch.device,
        seed: int = 0,
        kernels: Kernels | None = None,
        error_every: int = ERROR_EVERY,
        part_numel: int | None = None,
    ) -> None:
        self.plan, self.seed, self.step = plan, seed, 0
        self.part_numel = part_numel  # elements that are encoded while the part before them travels
        self.group = Metered(group)
        self.clock = Clock()
        self.place = Place(group.size, group.rank, device, kernels or pick(device))
        self.memories: dict[str, Memory] = {}
        for entry in plan.entries:
            self.memory(entry.memory)
        self.statistics = Statistics(error_every)
        self._journey = Journey(self.group, Scratch(device), self.clock)
        self.notes: Notes = {}
        self.finite_steps = 0  # phases go by these: a step that GradScaler skips is nobody's sample
        self._finite = True  # every mean of this step so far
        self._lessons: list[
            tuple[Bucket, Transit]
        ] = []  # means that stages learn from, if the step is finite
        self._lanes: dict[tuple[Layout, float, tuple[str, ...]], list[Lane]] = {}
        self.steering = Steering(plan.control, plan.theta)
        self._steered = False  # the share of this step is decided
        self._eased = plan, 1.0, plan  # a plan, a share, and the plan with that share of its strength
        self.compare_digests(plan.digest, "plans (codec, model, world size or version)")

    def exchange(self, bucket: Bucket) -> None:
        """Replaces the gradients in a bucket by their means over all ranks.

        x       = memory.before(g)            what was held back joins in
        agreed  = sum, max over ranks of offer(x)  what all ranks share BEFORE encoding: a basis, a scale
        payload = encode(x, agreed)           local, pure, its size known before any data existed
        kept    = x - decode_own(payload)     what was not sent: staged, while the payload travels
        mean    = route.reduce(payload)       travel, merge, decode; parts overlap each other

        All of a step is believed at its end (`end_step`), if every mean in it is finite.
        """
        self.clock.current = PREPARE
        self._steer()
        lanes = self._lanes_of(bucket.layout)
        self.statistics.note_exchange(lanes)
        wide = self._wide(bucket, lanes)
        transits = [self._transit(bucket, lane, index, wide) for index, lane in enumerate(lanes)]
        self._transform(transits)
        self._agree(transits)
        for route, members in _by_route(transits).items():
            parcels = [transit.parcels(self.group.size) for transit in members]
            route.reduce(_messages(parcels), self._journey)
        for transit in transits:
            self._finish(transit, bucket)

    def join(self, plan: Plan) -> None:
        """More tensors, those of a bucket never seen before; called by the thread that exchanges."""
        self.plan = self.plan.joined(plan)

    def end_step(self) -> None:
        """All buckets of a step have been exchanged: its memories and lessons are believed, or none of them.

        The means have the same bits on all ranks, so all ranks decide alike. A step with a mean that is not
        finite is one that GradScaler skips: nothing of it is applied, so nothing of it may be taken as sent.
        """
        for memory in self.memories.values():
            memory.commit() if self._finite else memory.forget()
        if self._finite:
            for bucket, transit in self._lessons:
                transit.x = self._wide(bucket, [transit.lane])  # the mean, which is still in its bucket
                transit.learn()
        self._lessons.clear()
        self.step += 1
        self.finite_steps += int(self._finite)
        self._finite = True
        self._steered = False
        self.statistics.steps += 1

    def compare_digests(self, digest: bytes, what: str) -> None:
        """A fixed-size exchange, before any whose size depends on the plan: all ranks raise, or none."""
        mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(self.place.device)
        everyone = torch.empty(self.group.size, mine.numel(), dtype=torch.uint8, device=self.place.device)
        self.clock.current = COMPARE
        with self.group.aside():
            self.group.gather(mine, everyone).wait()
        differing = [rank for rank in range(self.group.size) if not torch.equal(everyone[rank], everyone[0])]
        if differing:
            raise PlanError(
                f"ranks disagree on their {what}: rank {self.group.global_rank(0)} and rank "
                f"{', '.join(str(self.group.global_rank(rank)) for rank in differing)} differ; "
                "build the same model and pass the same codec on every rank"
            )
        self.clock.current = PREPARE

    def observations(self) -> list[Observation]:
        """What every rank has observed since the last step; collective."""
        mine = self.steering.pending.record(self.place.device)
        records = mine.new_empty(self.group.size, RECORD_BYTES)
        with self.clock.stage("agree"):
            self.group.gather(mine, records).wait()
        return read_records(records)

    def _steer(self) -> None:
        """Before the first bucket of a step all ranks decide, from the same numbers, how strong it is."""
        if self._steered or self.plan.control is None:
            return
        told = self.observations() if self.steering.listens else [Observation()]
        self.clock.current = COMPARE  # if they disagree all ranks know it, and all raise
        if self.steering.decide(told, self.group.global_rank, self.step):
            self._lanes.clear()  # gentle lanes hold large buffers
            self.statistics.forget_lanes()
        for memory in self.memories.values():
            memory.share = self.steering.share
        self.clock.current = PREPARE
        self._steered = True

    def _plan_now(self) -> Plan:
        """The plan with the strength of this step."""
        plan, share, _ = self._eased
        if plan is not self.plan or share != self.steering.share:
            share = self.steering.share
            self._eased = self.plan, share, self.plan.eased(share)
        return self._eased[2]

    def _lanes_of(self, layout: Layout) -> list[Lane]:
        """Cached by what these tensors alone are like: all ranks find them, or all compare them anew."""
        plan = self._plan_now()
        key = layout, self.steering.share, plan.phases(self.finite_steps, self.notes, layout.names)
        lanes = self._lanes.get(key)
        if lanes is None:
            lanes = plan.lanes(layout, self.place, self.finite_steps, self.notes, self.part_numel)
            self.compare_digests(lanes_digest(lanes), "buckets or codecs")
            self._lanes[key] = lanes
        return lanes

    def memory(self, text: str) -> Memory:
        """The memory of all tensors whose plan says so; made when it is first asked for."""
        if text not in self.memories:
            self.memories[text] = make_memory(text, self.group.size)
        return self.memories[text]

    @property
    def buffer_bytes(self) -> int:
        """What the exchange itself takes besides memories: buffers that are used again."""
        return self._journey.scratch.nbytes

    def _transit(self, bucket: Bucket, lane: Lane, index: int, wide: Tensor) -> Transit:
        own_dtype = lane.bound.codec.own_dtype
        measured = self.statistics.wants_error(self.step) and not own_dtype
        return Transit(
            lane,
            index,
            bucket.buffer if own_dtype else wide,
            self.memory(lane.memory),
            bucket.unit,
            Key(self.seed, self.step, self.group.rank),
            self._journey.scratch,
            self.statistics if measured else None,
            self.plan.remembers,
        )

    def _wide(self, bucket: Bucket, lanes: Sequence[Lane]) -> Tensor:
        """The bucket as float32, for lanes that do not travel in their own dtype."""
        if bucket.buffer.dtype == torch.float32 or all(lane.bound.codec.own_dtype for lane in lanes):
            return bucket.buffer
        values = self._journey.scratch.take("values", 4 * bucket.buffer.numel()).view(torch.float32)
        return values.copy_(bucket.buffer)

    def _transform(self, transits: list[Transit]) -> None:
        """Runs the stages, all lanes in step; what the stages offer is added up over all ranks on the way."""
        for depth in range(max(len(transit.stages) for transit in transits)):
            staged = [(transit, transit.stages[depth]) for transit in transits if depth < len(transit.stages)]
            with self.clock.stage("encode"):
                offers = [stage.offer(transit.numbers) for transit, stage in staged]
                numbers = torch.cat(offers)
            if numbers.numel():
                with self.clock.stage("agree"):
                    sum_in_order(self.group, numbers)
            with self.clock.stage("encode"):
                agreed = torch.split(numbers, [offer.numel() for offer in offers])
                for (transit, stage), own in zip(staged, agreed, strict=True):
                    transit.transform(stage, own)

    def _agree(self, transits: list[Transit]) -> None:
        """One maximum for all lanes of the bucket."""
        with self.clock.stage("encode"):
            offers = [transit.offer() for transit in transits]
            words = torch.cat(offers)
        if words.numel():
            with self.clock.stage("agree"):
                self.group.max_(words).wait()
        for transit, agreed in zip(
            transits, torch.split(words, [offer.numel() for offer in offers]), strict=True
        ):
            transit.agreed = agreed

    def _finish(self, transit: Transit, bucket: Bucket) -> None:
        """Undoes the stages and fills the bucket; what is to be learnt waits for the end of the step."""
        with self.clock.stage("decode"):
            transit.finish()
            self._finite &= transit.finite
            if transit.x is not bucket.buffer:
                for piece in transit.lane.layout.slices:
                    bucket.buffer[piece] = transit.x[piece]
            if transit.lane.bound.codec.learns:
                self._lessons.append((bucket, transit))


def _by_route(transits: list[Transit]) -> dict[Route, list[Transit]]:
    routes: dict[Route, list[Transit]] = {}
    for transit in transits:
        routes.setdefault(transit.lane.route, []).append(transit)
    return routes


def _messages(lanes: Sequence[Sequence[PartInTransit]]) -> list[list[Parcel]]:
    """The first parts of all lanes travel together, then the second ones, and so on."""
    rounds = zip_longest(*lanes)
    return [[parcel for parcel in parcels if parcel is not None] for parcels in rounds]
