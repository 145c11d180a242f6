"""The engine: runs a plan. One step of one bucket is the straight line in `exchange`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
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
from thinwire.kernels import Kernels, pick
from thinwire.key import Key
from thinwire.lane import Lane, lanes_digest
from thinwire.memory import Memory, make_memory
from thinwire.plan import Plan
from thinwire.routes.base import Journey, Parcel, Route
from thinwire.scratch import Scratch
from thinwire.spec import Layout
from thinwire.stages.base import BoundStage, Notes
from thinwire.statistics import ERROR_EVERY, Statistics


@dataclass(frozen=True)
class Bucket:
    """A flat buffer of gradients, the tensors in it, and the loss scale they carry."""

    buffer: Tensor
    layout: Layout
    unit: float = 1.0


@dataclass
class Load:
    """A lane in the middle of an exchange."""

    lane: Lane
    x: Tensor  # the tensors' values
    y: Tensor = field(init=False)  # what the coder sees of them: x itself if there are no stages
    agreed: Tensor = field(init=False)
    parcels: list[Parcel] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        self.y = self.x

    def makers(self, number: int) -> tuple[Callable[[], None] | None, Callable[[], None] | None]:
        """How the numbers of a part are made and taken back, if a stage works part by part."""
        stage, ranges = self.lane.bound.ranged, self.lane.ranges
        if stage is None or ranges is None:
            return None, None
        first, last = ranges[number]
        return (
            lambda: stage.forward_range(self.x, self.y, first, last),
            lambda: stage.inverse_range(self.y, self.x, first, last),
        )

    @property
    def layout(self) -> Layout:
        return self.lane.layout


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
        self._finite = True
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
        kept    = x - decode_own(payload)     what was not sent: staged
        mean    = route.reduce(payload)       travel, merge, decode; parts overlap each other
        commit(kept) if the mean is finite    it has the same bits on all ranks, so all ranks decide alike
        """
        self.clock.current = PREPARE
        self._steer()
        lanes = self._lanes_of(bucket.layout)
        self.statistics.note_exchange(lanes)
        loads = [Load(lane, self._values(bucket, lane)) for lane in lanes]
        for load in loads:
            load.lane.bound.set_unit(bucket.unit)
            if not load.lane.bound.remembers_coordinates:
                self._memory(load).before(load.x, load.layout, bucket.unit)
        self._transform(loads)
        for load in loads:  # here what is held back joins in behind the stages
            if load.lane.bound.remembers_coordinates:
                self._memory(load).before(load.y, load.lane.bound.inner, bucket.unit)
        self._agree(loads)
        self._pack(loads)
        for load in loads:
            self._stage(load, bucket.unit)
        for route, members in _by_route(loads).items():
            route.reduce(_messages(members), self._journey)
        for load in loads:
            self._finish(load, bucket)

    def join(self, plan: Plan) -> None:
        """More tensors, those of a bucket never seen before; called by the thread that exchanges."""
        self.plan = self.plan.joined(plan)

    def end_step(self) -> None:
        """All buckets of a step have been exchanged: the next draws use new keys."""
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

    def _memory(self, load: Load) -> Memory:
        return self.memory(load.lane.memory)

    def _values(self, bucket: Bucket, lane: Lane) -> Tensor:
        """The bucket as this lane's codec takes it: in its own dtype, or as float32."""
        if lane.bound.codec.own_dtype or bucket.buffer.dtype == torch.float32:
            return bucket.buffer
        values = self._journey.scratch.take("values", 4 * bucket.buffer.numel()).view(torch.float32)
        return values.copy_(bucket.buffer)

    def _transform(self, loads: list[Load]) -> None:
        """Runs the stages, all lanes in step; what the stages offer is added up over all ranks on the way."""
        for depth in range(max(len(load.lane.bound.stages) for load in loads)):
            staged = [
                (load, load.lane.bound.stages[depth]) for load in loads if depth < len(load.lane.bound.stages)
            ]
            with self.clock.stage("encode"):
                offers = [stage.offer(load.y) for load, stage in staged]
                numbers = torch.cat(offers)
            if numbers.numel():
                with self.clock.stage("agree"):
                    self.group.sum_(numbers).wait()
            with self.clock.stage("encode"):
                agreed = torch.split(numbers, [offer.numel() for offer in offers])
                for (load, stage), own in zip(staged, agreed, strict=True):
                    load.y = self._forward(load, stage, own)

    def _forward(self, load: Load, stage: BoundStage, agreed: Tensor) -> Tensor:
        ranged = load.lane.bound.ranged
        if ranged is None:
            return stage.forward(load.y, agreed)
        ranged.prepare(agreed)  # its numbers are made part by part, each when its turn comes
        nbytes = 4 * load.lane.bound.inner.numel
        return self._journey.scratch.take(f"numbers {id(load.lane)}", nbytes).view(torch.float32)

    def _agree(self, loads: list[Load]) -> None:
        """One maximum for all lanes of the bucket."""
        with self.clock.stage("encode"):
            offers = [load.lane.bound.offer(load.y) for load in loads]
            words = torch.cat(offers)
        if words.numel():
            with self.clock.stage("agree"):
                self.group.max_(words).wait()
        for load, agreed in zip(loads, torch.split(words, [offer.numel() for offer in offers]), strict=True):
            load.agreed = agreed

    def _pack(self, loads: list[Load]) -> None:
        """Every part of every lane gets its payload buffer; the route encodes into it when its turn comes."""
        key = Key(self.seed, self.step, self.group.rank)
        for index, load in enumerate(loads):
            for number, part in enumerate(load.lane.parts):
                payload = part.in_place(load.y) if load.lane.route.in_place else None
                if payload is None:
                    nbytes = load.lane.route.payload_bytes(part, self.group.size)
                    payload = self._journey.scratch.take(f"payload {index}.{number}", nbytes)
                load.parcels.append(Parcel(part, load.y, load.agreed, key, payload, *load.makers(number)))

    def _stage(self, load: Load, unit: float) -> None:
        """Keeps back what the payloads do not carry, and measures it now and then."""
        bound = load.lane.bound
        measure = self.statistics.wants_error(self.step) and not bound.codec.own_dtype
        if load.lane.memory == "none" and not measure:
            return
        with self.clock.stage("encode"):
            own = self._journey.scratch.take("own", load.x.nbytes).view(load.x.dtype)
            numbers = bound.numbers(own)
            for parcel in load.parcels:
                parcel.encode()
                parcel.packer.decode_own(parcel.payload, parcel.agreed, numbers)
            meant, sent, layout = load.y, numbers, bound.inner
            if not bound.remembers_coordinates:
                bound.finish(numbers, own)
                meant, sent, layout = load.x, own, load.layout
            self._memory(load).after(meant, sent, layout, unit)
            if measure:
                self.statistics.note_error(meant, sent, layout)
                for parcel in load.parcels:
                    self.statistics.note_tallies(parcel.packer.tallies())

    def _finish(self, load: Load, bucket: Bucket) -> None:
        """Undoes the stages, believes the memory where the mean is finite, and fills the bucket."""
        with self.clock.stage("decode"):
            bound = load.lane.bound
            y = bound.finish(load.y, load.x) if bound.ranged is None else load.y
            if load.lane.memory != "none" or bound.stages:
                # a stage's numbers tell as well, and they are fewer
                values, layout = (y, bound.stages[0].out) if bound.stages else (load.x, load.layout)
                pairs = zip(layout.names, layout.slices, strict=True)
                finite = [name for name, piece in pairs if _is_finite(values[piece])]
                self._memory(load).commit(tuple(finite))
                if len(finite) == len(load.layout.names):
                    bound.learn(y, load.x)
                else:
                    self._finite = False
            if load.x is not bucket.buffer:
                for piece in load.layout.slices:
                    bucket.buffer[piece] = load.x[piece]


def _is_finite(x: Tensor) -> bool:
    """One pass and no temporary: NaN is both the least and the greatest of numbers."""
    return x.numel() == 0 or all(bool(torch.isfinite(end)) for end in x.aminmax())


def _by_route(loads: list[Load]) -> dict[Route, list[Load]]:
    routes: dict[Route, list[Load]] = {}
    for load in loads:
        routes.setdefault(load.lane.route, []).append(load)
    return routes


def _messages(loads: list[Load]) -> list[list[Parcel]]:
    """The first parts of all lanes travel together, then the second ones, and so on."""
    rounds = zip_longest(*(load.parcels for load in loads))
    return [[parcel for parcel in parcels if parcel is not None] for parcels in rounds]
