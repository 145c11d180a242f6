"""A forecast: what a step takes with a codec on a cluster, and where its time goes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from thinwire.perf import collectives
from thinwire.perf.buckets import BUCKET_MB, Bucket, ddp_buckets
from thinwire.perf.compute import Compute, compute_of
from thinwire.perf.device import Device
from thinwire.perf.network import Network
from thinwire.perf.speed import CodecSpeed, Speeds
from thinwire.perf.step import Beside, BucketTimes, PartTimes, StepTimes, step_times
from thinwire.perf.topology import Topology
from thinwire.perf.traffic import BucketTraffic, Message, Parcel, Traffic

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
    acts = (act for bucket in traffic.buckets for act in bucket.acts)
    sent = sum(collectives.sent_bytes(act, topology.workers) for act in acts)
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
    if not topology.link.paces:
        return Beside.shared(alone, contends, wire_contends)
    busy = bucket_times(bucket, alone.ready, crowded[0], speeds, crowded[1]).stretched(1 + contends, 1.0)
    lost = sum(collectives.held_up(topology, act, wire_contends) for act in bucket.acts)
    if inside is not None:
        acts = collectives.inside_acts(4 * bucket.numel)
        lost += sum(collectives.held_up(inside, act, wire_contends) for act in acts)
    return Beside(busy.taken_s, min(busy.taken_s, contends * alone.codec_s + lost))


def bucket_times(
    bucket: BucketTraffic, ready_s: float, topology: Topology, speeds: Speeds, inside: Topology | None = None
) -> BucketTimes:
    """Seconds of a bucket's stages; `inside`: the workers of a node, whose raw sums leaders exchange."""
    parcels = [
        (parcel, _speed(parcel, speeds, message.back is not None))
        for messages in bucket.routes
        for message in messages
        for parcel in message.parcels
    ]
    alone = topology.workers == 1
    there, back = collectives.inside_acts(4 * bucket.numel)
    return BucketTimes(
        ready_s,
        () if alone else tuple(tuple(_part(m, topology, speeds) for m in ms) for ms in bucket.routes),
        prepare=0.0 if alone else sum(_before(parcel, speed) for parcel, speed in parcels),
        agree=sum(collectives.seconds(topology, act) for act in bucket.agree),
        finish=0.0 if alone else sum(speed.finish * parcel.numel for parcel, speed in parcels),
        before=0.0 if inside is None else collectives.seconds(inside, there),
        after=0.0 if inside is None else collectives.seconds(inside, back),
    )


def _part(message: Message, topology: Topology, speeds: Speeds) -> PartTimes:
    sharded = message.back is not None
    each = [(_speed(parcel, speeds, sharded), parcel.numel) for parcel in message.parcels]
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


def _speed(parcel: Parcel, speeds: Speeds, sharded: bool = False) -> CodecSpeed:
    return speeds.of(parcel.codec, parcel.remembers, sharded, parcel.key)


def _before(parcel: Parcel, speed: CodecSpeed) -> float:
    """What comes before ranks agree; what every call and every tensor costs is counted here."""
    return speed.prepare * parcel.numel + speed.tensor * parcel.num_tensors + speed.parcel
