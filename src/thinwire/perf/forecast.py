"""A forecast: what a step takes with a codec on a cluster, and where its time goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from thinwire.perf import collectives
from thinwire.perf.calibration import CodecSpeed, Speeds
from thinwire.perf.collectives import BucketTraffic, Message, PartTraffic, Traffic
from thinwire.perf.link import Topology
from thinwire.perf.network import BUCKET_MB, Bucket, Compute, Device, Network, compute_of, ddp_buckets


@dataclass(frozen=True)
class PartTimes:
    """Seconds of one message: on the thread (encode, keep, merge, decode) and on the wire (out, back)."""

    encode: float = 0.0
    out: float = 0.0
    keep: float = 0.0
    merge: float = 0.0
    back: float | None = None  # None: nothing comes back, what went out is decoded
    decode: float = 0.0

    def stretched(self, codec: float, wire: float) -> PartTimes:
        return PartTimes(
            codec * self.encode,
            wire * self.out,
            codec * self.keep,
            codec * self.merge,
            None if self.back is None else wire * self.back,
            codec * self.decode,
        )

    @property
    def codec_s(self) -> float:
        return self.encode + self.keep + self.merge + self.decode

    @property
    def wire_s(self) -> float:
        return self.out + (self.back or 0.0)


@dataclass(frozen=True)
class BucketTimes:
    """Seconds of one bucket. `before` and `after`: inside the node, around what leaders exchange."""

    ready: float  # after the start of the backward pass
    routes: tuple[tuple[PartTimes, ...], ...]
    prepare: float = 0.0
    agree: float = 0.0
    finish: float = 0.0
    before: float = 0.0
    after: float = 0.0

    @property
    def codec_s(self) -> float:
        """What the thread computes."""
        return self.prepare + self.finish + sum(part.codec_s for parts in self.routes for part in parts)

    @property
    def wire_s(self) -> float:
        """What the wire is busy for."""
        inside = self.before + self.after
        return self.agree + inside + sum(part.wire_s for parts in self.routes for part in parts)

    @property
    def taken_s(self) -> float:
        """From when the thread begins with this bucket until it is done."""
        now = self.before + self.prepare + self.agree
        for parts in self.routes:
            now = _travel(parts, now)
        return now + self.finish + self.after

    def stretched(self, codec: float, wire: float) -> BucketTimes:
        """The same bucket where codecs and wire take so many times as long."""
        return replace(
            self,
            routes=tuple(tuple(part.stretched(codec, wire) for part in parts) for parts in self.routes),
            prepare=codec * self.prepare,
            agree=wire * self.agree,
            finish=codec * self.finish,
            before=wire * self.before,
            after=wire * self.after,
        )


@dataclass(frozen=True)
class Beside:
    """A bucket beside the backward pass: how long it takes there, and by how much it holds that pass up."""

    taken_s: float
    lost_s: float

    @classmethod
    def shared(cls, bucket: BucketTimes, contends: float, wire_contends: float) -> Beside:
        """Two that want one core: each second of the one is a second more for the other."""
        slower = bucket.stretched(1 + contends, 1 + wire_contends)
        return cls(slower.taken_s, contends * bucket.codec_s + wire_contends * bucket.wire_s)


@dataclass(frozen=True)
class StepTimes:
    """A step: its length, and where it goes. step = compute + codec + wire - hidden."""

    compute_s: float
    codec_s: float
    wire_s: float
    step_s: float

    @property
    def hidden_s(self) -> float:
        """Work that went on at the same time as other work."""
        return self.compute_s + self.codec_s + self.wire_s - self.step_s

    @property
    def exposed_s(self) -> float:
        """What the exchange adds to computing."""
        return self.step_s - self.compute_s


def step_times(
    forward_s: float, backward_s: float, buckets: Sequence[BucketTimes], beside: Sequence[Beside] = ()
) -> StepTimes:
    """Serves the buckets in order; without `beside` nothing holds up anything.

    >>> wire = BucketTimes(ready=2.0, routes=((PartTimes(out=3.0),),))
    >>> step_times(1.0, 2.0, [wire]).step_s
    6.0
    """
    company = beside or [Beside.shared(bucket, 0.0, 0.0) for bucket in buckets]
    now = done = 0.0  # since the backward pass began; seconds of it that are done
    for bucket, slower in zip(buckets, company, strict=True):
        now, done = now + max(0.0, bucket.ready - done), max(done, bucket.ready)
        timing = (
            max(0.0, 1 - slower.lost_s / slower.taken_s) if slower.taken_s else 1.0
        )  # of the backward pass
        left = max(0.0, backward_s - done)
        spent = min(slower.taken_s, left / timing if timing else math.inf)
        rest = 1 - spent / slower.taken_s if slower.taken_s else 1.0  # of the bucket, when that pass is over
        now, done = now + spent + rest * bucket.taken_s, done + timing * spent
    step_s = forward_s + now + max(0.0, backward_s - done)
    codec_s = sum(bucket.codec_s for bucket in buckets)
    return StepTimes(forward_s + backward_s, codec_s, sum(bucket.wire_s for bucket in buckets), step_s)


def _travel(parts: Sequence[PartTimes], now: float) -> float:
    """The parts of one route, beginning at `now`: when the last is decoded."""
    wire, arrivals = now, []
    for part in parts:
        now += part.encode
        wire = max(wire, now) + part.out
        arrivals.append(wire)
        now += part.keep
    for index, part in enumerate(parts):
        if part.back is not None:
            now = max(now, arrivals[index]) + part.merge
            wire = max(wire, now) + part.back
            arrivals[index] = wire
    for part, arrival in zip(parts, arrivals, strict=True):
        now = max(now, arrival) + part.decode
    return now


DENSE = "dense"
FLAT, HIERARCHICAL = "flat", "hierarchical"  # all workers exchange; or leaders do, raw sums inside nodes


@dataclass(frozen=True)
class Setting:
    """All that a forecast takes besides the codec: inputs, every one replaceable by what was measured."""

    network: Network
    topology: Topology
    compute: Compute
    speeds: Speeds
    buckets: tuple[Bucket, ...]

    @classmethod
    def of(
        cls,
        network: Network,
        topology: Topology,
        device: Device,
        examples_per_s: float | None = None,
        bucket_mb: float = BUCKET_MB,
    ) -> Setting:
        """The setting that follows from named defaults."""
        buckets = ddp_buckets(network.layers, bucket_mb)
        compute = compute_of(network, buckets, device, examples_per_s)
        return cls(network, topology, compute, Speeds(device), buckets)

    def on(self, topology: Topology) -> Setting:
        return replace(self, topology=topology)


@dataclass(frozen=True)
class Phase:
    """The steps of one phase of the codec: their share of all steps, their time and what a worker sends."""

    name: str
    share: float
    times: StepTimes
    sent_bytes: int


@dataclass(frozen=True)
class Forecast:
    """A codec in a setting. Times and bytes are means over the codec's phases; seconds for one step.

    `sent_bytes` is what one worker sends; by the hierarchical way, what a leader sends to other nodes.
    """

    codec: str
    setting: Setting
    way: str
    phases: tuple[Phase, ...]
    refusal: str | None = None  # why this codec cannot serve this cluster

    def _mean(self, name: str) -> float:
        return sum(phase.share * float(getattr(phase.times, name)) for phase in self.phases)

    @cached_property
    def step_s(self) -> float:
        return self._mean("step_s")

    @property
    def compute_s(self) -> float:
        return self._mean("compute_s")

    @property
    def codec_s(self) -> float:
        return self._mean("codec_s")

    @property
    def wire_s(self) -> float:
        return self._mean("wire_s")

    @property
    def hidden_s(self) -> float:
        return self._mean("hidden_s")

    @property
    def sent_bytes(self) -> float:
        return sum(phase.share * phase.sent_bytes for phase in self.phases)

    @property
    def examples_per_s(self) -> float:
        """Of the whole cluster."""
        return self.setting.topology.workers * self.setting.compute.batch / self.step_s


def forecast(codec: str, setting: Setting, ways: tuple[str, ...] = (FLAT, HIERARCHICAL)) -> Forecast:
    """The quickest way that is allowed; hierarchical only where a node has several workers."""
    topology = setting.topology
    able = [way for way in ways if way == FLAT or (topology.gpus > 1 and topology.nodes > 1)] or [FLAT]
    made = [_forecast(codec, setting, way) for way in able]
    possible = [one for one in made if one.refusal is None]
    return min(possible, key=lambda one: one.step_s) if possible else made[0]


def _forecast(codec: str, setting: Setting, way: str) -> Forecast:
    from thinwire.perf.wire import refusal, traffic

    topology = setting.topology.leaders if way == HIERARCHICAL else setting.topology
    refused = refusal(codec, setting.buckets, topology.workers)
    if refused is not None:
        return Forecast(codec, setting, way, (), refused)
    phases = tuple(
        _phase(one, setting, topology, way) for one in traffic(codec, setting.buckets, topology.workers)
    )
    return Forecast(codec, setting, way, phases)


def _phase(traffic: Traffic, setting: Setting, topology: Topology, way: str) -> Phase:
    inside = setting.topology.inside if way == HIERARCHICAL else None
    buckets = [
        bucket_times(bucket, ready, topology, setting.speeds, inside)
        for bucket, ready in zip(traffic.buckets, setting.compute.ready_s, strict=True)
    ]
    compute = setting.compute
    crowded = topology.busy, None if inside is None else inside.busy
    beside = [
        _beside(bucket, times, (topology, inside), crowded, setting.speeds)
        for bucket, times in zip(traffic.buckets, buckets, strict=True)
    ]
    times = step_times(compute.forward_s, compute.backward_s, buckets, beside)
    calls = (call for bucket in traffic.buckets for call in bucket.calls)
    sent = sum(collectives.sent_bytes(call, topology.workers) for call in calls)
    return Phase(traffic.phase, traffic.share, times, sent)


def _beside(
    bucket: BucketTraffic,
    alone: BucketTimes,
    quiet: tuple[Topology, Topology | None],
    crowded: tuple[Topology, Topology | None],
    speeds: Speeds,
) -> Beside:
    """The bucket beside the backward pass: on a busy link if one was measured, else by shares.

    `quiet` and `crowded`: the workers that exchange and those inside a node, as they are alone and busy.
    """
    topology, inside = quiet
    contends, wire_contends = speeds.device.contends, speeds.device.wire_contends
    if not topology.link.timings:
        return Beside.shared(alone, contends, wire_contends)
    busy = bucket_times(bucket, alone.ready, crowded[0], speeds, crowded[1]).stretched(1 + contends, 1.0)
    lost = sum(collectives.held_up(topology, call, wire_contends) for call in bucket.calls)
    if inside is not None:
        calls = collectives.inside_calls(4 * bucket.numel)
        lost += sum(collectives.held_up(inside, call, wire_contends) for call in calls)
    return Beside(busy.taken_s, min(busy.taken_s, contends * alone.codec_s + lost))


def bucket_times(
    bucket: BucketTraffic, ready_s: float, topology: Topology, speeds: Speeds, inside: Topology | None = None
) -> BucketTimes:
    """Seconds of a bucket's stages; `inside`: the workers of a node, whose raw sums leaders exchange."""
    parts = [
        (part, _speed(part, speeds, message.back is not None))
        for messages in bucket.routes
        for message in messages
        for part in message.parts
    ]
    alone = topology.workers == 1
    there, back = collectives.inside_calls(4 * bucket.numel)
    return BucketTimes(
        ready_s,
        () if alone else tuple(tuple(_part(m, topology, speeds) for m in ms) for ms in bucket.routes),
        prepare=0.0 if alone else sum(_before(part, speed) for part, speed in parts),
        agree=sum(collectives.seconds(topology, call) for call in bucket.agree),
        finish=0.0 if alone else sum(speed.finish * part.numel for part, speed in parts),
        before=0.0 if inside is None else collectives.seconds(inside, there),
        after=0.0 if inside is None else collectives.seconds(inside, back),
    )


def _part(message: Message, topology: Topology, speeds: Speeds) -> PartTimes:
    sharded = message.back is not None
    each = [(_speed(part, speeds, sharded), part.numel) for part in message.parts]
    payloads = topology.workers if message.gathers else 0
    back = None if message.back is None else collectives.seconds(topology, message.back)
    return PartTimes(
        encode=sum(speed.encode * numel for speed, numel in each),
        out=collectives.seconds(topology, message.out),
        keep=sum(speed.keep * numel for speed, numel in each),
        merge=sum(speed.merge * numel for speed, numel in each) if sharded else 0.0,
        back=back,
        decode=sum((speed.decode + payloads * speed.payload) * numel for speed, numel in each),
    )


def _speed(part: PartTraffic, speeds: Speeds, sharded: bool = False) -> CodecSpeed:
    return speeds.of(part.codec, part.remembers, sharded, part.key)


def _before(part: PartTraffic, speed: CodecSpeed) -> float:
    """What comes before ranks agree; what every call and every tensor costs is counted here."""
    return speed.prepare * part.numel + speed.tensor * part.num_tensors + speed.part
