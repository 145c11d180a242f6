"""The engine: runs a plan. `exchange` is the path of one bucket."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from thinwire.clock import COMPARE, PREPARE, Clock
from thinwire.codecs.coder import Context
from thinwire.codecs.stage import Learned
from thinwire.devices import Late, is_finite, is_host, judge_on, sent
from thinwire.exchange.in_flight import InFlight, InFlightByChunks, LaneFeedback, LaneStep
from thinwire.exchange.pending import pending_gradients, released_gradients
from thinwire.exchange.statistics import ERROR_EVERY, Statistics
from thinwire.feedback.base import ErrorFeedback
from thinwire.feedback.residual import OWNER, PENDING, PendingResidual
from thinwire.feedback.table import make_feedback
from thinwire.groups.base import Group, compare_digests
from thinwire.groups.collectives import sum_in_order
from thinwire.groups.wrappers import Metered
from thinwire.kernels import Kernels, pick
from thinwire.plans.lane import Lane, lanes_digest, step_bytes
from thinwire.plans.plan import Plan
from thinwire.routes import Route, Transport
from thinwire.schedules.base import RECORD_BYTES, Observation, read_records
from thinwire.schedules.table import Scheduler
from thinwire.tensors import Key, Layout, Scratch


@dataclass(frozen=True)
class Bucket:
    """A flat buffer of gradients, the tensors in it, and the loss scale they carry."""

    buffer: Tensor
    layout: Layout
    loss_scale: float = 1.0

    def put(self, where: slice, mean: Tensor) -> None:
        """The mean of a tensor, in the bucket's dtype: a finite number beyond that becomes its largest.

        Codecs may round up: of gradients that fit the dtype the mean fits it too, what stands for it may not.
        """
        target = self.buffer[where].copy_(mean)
        if target.dtype.itemsize >= mean.dtype.itemsize:
            return
        if not is_host(target.device) or not is_finite(target):  # a device looks at nothing, it clamps
            largest = torch.finfo(target.dtype).max
            target.copy_(torch.where(mean.isfinite(), mean.clamp(-largest, largest), mean))

    def wide(self, lanes: Iterable[Lane], scratch: Scratch) -> Tensor:
        """The gradients as float32, for lanes that do not travel in their own dtype."""
        if self.buffer.dtype == torch.float32 or all(lane.codec.own_dtype for lane in lanes):
            return self.buffer
        values = scratch.take("values", 4 * self.buffer.numel()).view(torch.float32)
        return values.copy_(self.buffer)


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
        self.clock = Clock(device)
        self.context = Context(group.size, group.rank, device, kernels or pick(device))
        self.pending_residual = PendingResidual()  # of plans before this one
        self.feedbacks: dict[str, ErrorFeedback] = {PENDING: self.pending_residual}
        for entry in plan.entries:
            self.feedback_for(entry.feedback)
        self.statistics = Statistics(error_every)
        self.learned: Learned = {}  # by stages, from the means
        self.finite_steps = 0  # phases go by these: a step that GradScaler skips is nobody's sample
        self.scheduler = Scheduler(plan.schedule, plan.theta)
        self._transport = Transport(self.group, Scratch(device), self.clock)
        self._judge = judge_on(device)  # whether the means of this step are finite
        self._lessons: list[tuple[Bucket, InFlight]] = []  # means to learn from, if the step is finite
        self._lanes: dict[tuple[Layout, float, tuple[str, ...]], list[Lane]] = {}
        self._level_decided = False  # for this step
        self._records: Late | None = None  # what all ranks had observed before the step before
        self._at_level = plan, 1.0, plan  # a plan, a compression level, and the plan at that level
        self.compare_digests(self._digest(plan), "plans (codec, model, world size, version or seed)")

    def exchange(self, bucket: Bucket) -> None:
        """Replaces the gradients in a bucket by their means over all ranks.

        x       = feedback.before(g)             what was held back joins
        shared  = sum, max over ranks of x       what all ranks share BEFORE encoding: a basis, a scale
        payload = encode(x, shared)              local and pure; its size was known before any data existed
        kept    = x - reconstruction(payload)    what was not sent, computed while the payload travels
        mean    = decode(merged payloads)        chunks overlap each other

        A step commits at its end (`end_step`), if every mean in it is finite.
        """
        self.clock.current = PREPARE
        if self.plan.schedule is not None and not self._level_decided:
            self._decide_level()
        lanes = self._bind_lanes(bucket.layout)
        self.statistics.count_exchange(lanes)
        if self.pending_residual:
            self.pending_residual.before(bucket.buffer, bucket.layout.pieces(), bucket.loss_scale)
        flights = self._launch(bucket, lanes)
        self._transform(flights)
        self._share_context(flights)
        for route in dict.fromkeys(lane.route for lane in lanes):
            self._travel(route, [flight for flight in flights if flight.lane.route is route])
        for flight in flights:
            self._finish(flight, bucket)

    def join(self, plan: Plan) -> None:
        """More tensors, those of a bucket never seen before; called by the thread that exchanges."""
        self.plan = self.plan.joined(plan)
        for entry in plan.entries:
            self.feedback_for(entry.feedback)

    def switch(self, plan: Plan, group: Group | None = None) -> None:
        """Another plan from the next step on, collective; what was held back joins that step's gradients.

        `group`: the plan is for other ranks, who exchange from then on.
        What was learnt belonged to the old plan: phases and bases of the new one begin anew.
        """
        self.compare_digests(self._digest(plan), "plans (what auto has decided on)")
        self.catch_up()
        held = pending_gradients(self.plan, self.context, self.feedbacks, self.finite_steps, self.learned)
        for name, gradient in held.items():
            self.pending_residual.put(name, gradient)
        if group is not None:
            self.turn_to(group)
        self.adopt(plan)

    def turn_to(self, group: Group) -> None:
        """Exchanges with other ranks; a plan for them is adopted next."""
        self.group.turn_to(group)
        self.context = replace(self.context, world=group.size, rank=group.rank)

    def adopt(self, plan: Plan) -> None:
        """Another plan with nothing learnt and nothing held; for a state that is loaded next."""
        self.catch_up()
        self.plan = plan
        self.feedbacks = {PENDING: self.pending_residual}
        for entry in plan.entries:
            self.feedback_for(entry.feedback)
        self.scheduler = Scheduler(plan.schedule, plan.theta)
        self._at_level = plan, 1.0, plan
        self.learned.clear()
        self.finite_steps = 0
        self._lanes.clear()
        self.statistics.forget_lanes()

    def release_owners(self) -> None:
        """After loading a gathered state: what owners held of tensors that have no owners here is pending."""
        if OWNER in self.feedbacks:
            held = released_gradients(self.plan, self.context, self.feedbacks[OWNER], self.finite_steps)
            for name, gradient in held.items():
                self.pending_residual.put(name, gradient)

    def pass_step(self, layouts: Sequence[Layout]) -> None:
        """A step whose buckets went another way, as they are: it is counted like an exchange."""
        for layout in layouts:
            lanes = self._bind_lanes(layout)
            self.statistics.count_exchange(lanes)
            self.group.count("all_reduce", step_bytes(lanes))
        self.end_step()

    def end_step(self) -> None:
        """All buckets of a step have been exchanged: its error feedback and lessons commit, or none of them.

        The means have the same bits on all ranks, so all ranks decide alike. A step with a mean that is not
        finite is one that GradScaler skips: nothing of it is applied, so nothing of it may be taken as sent.
        """
        verdict = self._judge.end_step()
        if verdict.earlier is not None:
            self._hear(verdict.earlier)  # first: it is about what was cleared before this step
        for feedback in self.feedbacks.values():
            if feedback.state_kinds:
                feedback.settle(verdict)
        for bucket, flight in self._lessons if verdict.known is not False else ():
            mean = bucket.wide([flight.lane], self._transport.scratch)  # it is still in its bucket
            flight.learn(mean, verdict)
        self._lessons.clear()
        self.step += 1
        self.finite_steps += verdict.known is not False  # a device is believed until its word is here
        self._level_decided = False
        self.statistics.steps += 1

    def catch_up(self) -> None:
        """Waits for the verdict of the last step, where only the device knows it: before a state is saved."""
        if (finite := self._judge.last()) is not None:
            self._hear(finite)

    def _hear(self, finite: bool) -> None:
        """A verdict of a step before, which the device knew first."""
        self.finite_steps -= not finite
        for feedback in self.feedbacks.values():
            feedback.settled(finite)

    def agree_on_finite(self) -> None:
        """Where a rank sees only some of the means: a step is finite if it is on all ranks; collective."""
        if not self.plan.remembers:
            return
        spoilt = self._judge.word()
        with self.clock.time("agree"):
            self.group.all_reduce_max(spoilt).wait()
        self._judge.take(spoilt)

    def take_back(self, layout: Layout, finite: bool) -> None:
        """The means of a bucket of this step were replaced: nothing of its exchange is committed.

        `finite`: whether what took their place is.
        """
        for feedback in self.feedbacks.values():
            feedback.forget(layout.names)
        self._lessons = [(bucket, flight) for bucket, flight in self._lessons if bucket.layout != layout]
        self._judge.replaced(layout, finite)

    def compare_digests(self, digest: bytes, what: str) -> None:
        """A fixed-size exchange, before any whose size depends on the plan: all ranks raise, or none."""
        self.clock.current = COMPARE
        with self.group.aside():
            compare_digests(self.group, digest, what, self.context.device)
        self.clock.current = PREPARE

    def _digest(self, plan: Plan) -> bytes:
        """Of a plan, and of the seed where all ranks must draw alike to decode alike."""
        if not any(entry.codec.draws_alike for entry in plan.entries):
            return plan.digest
        return hashlib.blake2b(plan.digest + str(self.seed).encode(), digest_size=32).digest()

    def observations(self, earlier: bool = False) -> list[Observation]:
        """What every rank has observed since the last step, collective; `earlier`: what was gathered then."""
        mine = sent(self.scheduler.pending.record(), self.context.device)
        records = mine.new_empty(self.group.size, RECORD_BYTES)
        with self.clock.time("agree"):
            self.group.all_gather(mine, records).wait()
        if not earlier:
            return read_records(records)
        before, self._records = self._records, Late(records)
        if before is None:
            return [Observation()] * self.group.size
        return read_records(torch.tensor(before.read(), dtype=torch.uint8))

    def feedback_for(self, text: str) -> ErrorFeedback:
        """The error feedback of all tensors whose plan says so; made when it is first asked for."""
        if text not in self.feedbacks:
            self.feedbacks[text] = make_feedback(text, self.group.size)
        return self.feedbacks[text]

    def set_rates(self, rates: Mapping[str, float]) -> None:
        """The learning rate of every tensor in the step under way, for error feedback that needs them."""
        for feedback in self.feedbacks.values():
            feedback.rates = rates

    def set_norm(self, norm: float) -> None:
        """The norm of this rank's whole gradient in the step under way, for error feedback that needs it."""
        for feedback in self.feedbacks.values():
            feedback.norm = norm

    @property
    def lanes(self) -> list[list[Lane]]:
        """The lanes made so far: one list for every bucket, level and phase."""
        return list(self._lanes.values())

    @property
    def buffer_bytes(self) -> int:
        """What the exchange itself takes besides error feedback: buffers that are used again."""
        return self._transport.scratch.nbytes

    def _decide_level(self) -> None:
        """Before the first bucket of a step all ranks decide, from the same numbers, how strong it is."""
        lags = not is_host(self.context.device)  # the host does not wait for the numbers of this step
        told = self.observations(lags) if self.scheduler.listens else [Observation()]
        self.clock.current = COMPARE  # if they disagree all ranks know it, and all raise
        if self.scheduler.decide(told, self.group.global_rank, self.step):
            self._lanes.clear()  # near-lossless lanes hold large buffers
            self.statistics.forget_lanes()
        self.clock.current = PREPARE
        self._level_decided = True

    def _bind_lanes(self, layout: Layout) -> list[Lane]:
        """The lanes of a bucket in this step; collective where they are new: all ranks compare them.

        Cached by what these tensors alone are like: all ranks find them, or none.
        """
        plan, level = self.plan, 1.0
        if plan.schedule is not None:
            plan, level = self._plan_now(), self.scheduler.compression_level
        phases = plan.phases(self.finite_steps, self.learned, layout.names) if plan.has_phases else ()
        lanes = self._lanes.get((layout, level, phases))
        if lanes is None:
            lanes = plan.lanes(layout, self.context, self.finite_steps, self.learned, self.part_numel)
            self.compare_digests(lanes_digest(lanes), "buckets or codecs")
            self._lanes[layout, level, phases] = lanes
        return lanes

    def _plan_now(self) -> Plan:
        """The plan at the compression level of this step."""
        plan, level, _ = self._at_level
        if plan is not self.plan or level != self.scheduler.compression_level:
            level = self.scheduler.compression_level
            self._at_level = self.plan, level, self.plan.at_level(level)
        return self._at_level[2]

    def _launch(self, bucket: Bucket, lanes: Sequence[Lane]) -> list[InFlight]:
        """The lanes of a bucket with their gradients, joined by what was held back of them."""
        scratch, flights = self._transport.scratch, []
        wide = bucket.wide(lanes, scratch)
        key = Key(self.seed, self.step, self.group.rank)
        watched = self.plan.remembers or bool(self.pending_residual)
        see = partial(self._judge.see, bucket.layout) if watched else None
        for index, lane in enumerate(lanes):
            own_dtype = lane.codec.own_dtype
            measured = not own_dtype and self.statistics.wants_error(self.step, lane.bound.phase)
            starts = lane.codec.has_phases and lane.codec.starts(lane.step)
            level = 0.0 if starts else 1.0 if self.plan.schedule is None else self.scheduler.compression_level
            statistics = self.statistics if measured else None
            held = self.feedbacks[lane.feedback]
            owner = self.feedback_for(OWNER) if held.state_kinds and lane.bound.packer.reencodes else None
            feedback = LaneFeedback(held, bucket.loss_scale, statistics, level, owner)
            x = bucket.buffer if own_dtype else wide
            kind = InFlight if lane.bound.ranged is None else InFlightByChunks
            flights.append(kind(LaneStep(lane, x, index, feedback, key, scratch, see)))
        return flights

    def _transform(self, flights: Sequence[InFlight]) -> None:
        """Runs the stages, all lanes in step; what stages want summed is added over all ranks on the way."""
        for depth in range(max(len(flight.bound.stages) for flight in flights)):
            staged = [flight for flight in flights if depth < len(flight.bound.stages)]
            with self.clock.time("encode"):
                own = [flight.summands(depth) for flight in staged]
                values = torch.cat(own)
            if values.numel():
                with self.clock.time("agree"):
                    sum_in_order(self.group, values)
            with self.clock.time("encode"):
                sums = torch.split(values, [mine.numel() for mine in own])
                for flight, total in zip(staged, sums, strict=True):
                    flight.transform(depth, total)

    def _share_context(self, flights: Sequence[InFlight]) -> None:
        """One maximum over all ranks for all lanes of the bucket: the scales that they encode under."""
        with self.clock.time("encode"):
            counts = [flight.bound.packer.max_words for flight in flights]
            words = self._transport.scratch.take("maxima", 4 * sum(counts)).view(torch.int32)
            maxima = torch.split(words, counts)
            for flight, own in zip(flights, maxima, strict=True):
                flight.maxima(own)
        if words.numel():
            with self.clock.time("agree"):
                self.group.all_reduce_max(words).wait()
        for flight, shared in zip(flights, maxima, strict=True):
            flight.shared = shared

    def _travel(self, route: Route, flights: Sequence[InFlight]) -> None:
        """While one message travels the next is encoded, and what arrived first is decoded."""
        messages = route.messages([flight.chunks(self.group.size) for flight in flights])
        handles = []
        for index, message in enumerate(messages):
            with self.clock.time("encode", index):
                for chunk in message:
                    chunk.encode()
                    if chunk.noted and route.in_place:  # now: the sums take the payload's place
                        chunk.keep()
            handles.append(route.send(message, index, self._transport))
            with self.clock.time("encode", index):
                for chunk in message:
                    if chunk.noted and not route.in_place:
                        chunk.keep()
        for handle in handles:
            handle.merge()
        for index, (message, handle) in enumerate(zip(messages, handles, strict=True)):
            for chunk, sums in zip(message, handle.arrive(), strict=True):
                with self.clock.time("decode", index):
                    chunk.decode(sums)

    def _finish(self, flight: InFlight, bucket: Bucket) -> None:
        """Undoes the stages and fills the bucket; what is to be learnt waits for the end of the step."""
        with self.clock.time("decode"):
            flight.finish()
            if flight.load.x is not bucket.buffer:
                for piece in flight.lane.layout.slices:
                    bucket.put(piece, flight.load.x[piece])
            if flight.lane.codec.learns:
                self._lessons.append((bucket, flight))
