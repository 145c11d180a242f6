"""The wire: exact traffic of a codec, from thinwire's own plans. The model's only way into the core."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache
from itertools import zip_longest
from typing import Any

from thinwire.codecs.codec import Codec, parse
from thinwire.codecs.coder import Merge
from thinwire.errors import PlanError
from thinwire.perf.collectives import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_HALF,
    ALL_REDUCE_MAX,
    ALL_TO_ALL,
    ORDERED,
    BucketTraffic,
    Collective,
    Message,
    PartTraffic,
    Traffic,
)
from thinwire.perf.network import EMBEDDING, LAST, Bucket, Layer
from thinwire.plans.lane import Lane, dry_context
from thinwire.plans.plan import HORIZON, Plan
from thinwire.plans.policy import Model, Policy
from thinwire.routes import Route
from thinwire.tensors import Layout, Spec

DDP = "ddp"  # no codec: what DistributedDataParallel does by itself
_UNCOMPRESSED = ("sample", "choose")  # phases in which gradiveq sends everything
_Shape = tuple[tuple[int, ...], str]


def model_of(module: Any) -> Model:
    """What policies know of a torch module."""
    return Model.of(module)


def model_of_layers(layers: Iterable[Layer]) -> Model:
    """What policies know of a table."""
    listed = list(layers)
    return Model(
        tuple(Spec(layer.name, layer.shape) for layer in listed),
        frozenset(layer.name for layer in listed if layer.kind == EMBEDDING),
        frozenset(layer.name for layer in listed if layer.kind == LAST),
    )


def refusal(codec: str, buckets: Iterable[Bucket], workers: int) -> str | None:
    """Why a codec cannot serve so many workers, or None."""
    if codec == DDP:
        return None
    try:
        for bucket in buckets:
            _plan(codec, _shapes(bucket), _world(codec, workers))
    except PlanError as error:
        return str(error)
    return None


def traffic(codec: str, buckets: tuple[Bucket, ...], workers: int) -> tuple[Traffic, ...]:
    """What travels in a step, by phases; several buckets with the same shapes are planned once."""
    if codec == DDP:
        return (Traffic("", 1.0, tuple(map(_plain, buckets))),)
    return _traffic(codec, tuple(map(_shapes, buckets)), _world(codec, workers))


@lru_cache(maxsize=256)
def _traffic(codec: str, shapes: tuple[tuple[_Shape, ...], ...], workers: int) -> tuple[Traffic, ...]:
    made = Counter[tuple[str, ...]]()
    firsts: dict[tuple[str, ...], int] = {}
    chosen = _codecs(codec, tuple(dict.fromkeys(shapes)), workers)
    for step in range(HORIZON if any((c.phase(0) + c.phase(HORIZON)).strip() for c in chosen) else 1):
        phases = tuple(c.phase(step) for c in chosen)
        made[phases] += 1
        firsts.setdefault(phases, step)
    return tuple(
        Traffic(
            " ".join(dict.fromkeys(" ".join(phases).split())),
            count / made.total(),
            tuple(_bucket(codec, shape, workers, firsts[phases]) for shape in shapes),
        )
        for phases, count in made.items()
    )


def _plain(bucket: Bucket) -> BucketTraffic:
    """DDP's own exchange: one all-reduce a bucket, nothing coded; its copies belong to the backward pass."""
    numel = sum(layer.numel for layer in bucket)
    return BucketTraffic(numel, (), ((Message((), Collective(ALL_REDUCE, 4 * numel)),),))


def _shapes(bucket: Bucket) -> tuple[_Shape, ...]:
    return tuple((layer.shape, layer.kind) for layer in bucket)


@lru_cache(maxsize=1024)
def _world(codec: str, workers: int) -> int:
    """A world with the same messages: payloads that add as floats do not depend on how many add them."""
    return min(2, workers) if parse(codec).merge is Merge.SUM else workers


@lru_cache(maxsize=4096)
def _plan(codec: str, shapes: tuple[_Shape, ...], workers: int) -> Plan:
    """The plan of one bucket: bytes depend on shapes and kinds, not on names."""
    layers = (Layer(f"t{k}", shape, kind=kind) for k, (shape, kind) in enumerate(shapes))
    return Plan.of(Policy.of(codec), model_of_layers(layers), workers)


def _codecs(codec: str, shapes: tuple[tuple[_Shape, ...], ...], workers: int) -> list[Codec]:
    plans = [_plan(codec, shape, workers) for shape in shapes]
    return list({entry.codec.canonical: entry.codec for plan in plans for entry in plan.entries}.values())


@lru_cache(maxsize=4096)
def _bucket(codec: str, shapes: tuple[_Shape, ...], workers: int, step: int) -> BucketTraffic:
    plan = _plan(codec, shapes, workers)
    layout = Layout.packed(entry.spec for entry in plan.entries)
    lanes = plan.lanes(layout, dry_context(workers), step)
    by_route: dict[str, list[Lane]] = {}
    for lane in lanes:
        by_route.setdefault(lane.route.name, []).append(lane)
    routes = tuple(tuple(_messages(members, workers)) for members in by_route.values())
    return BucketTraffic(layout.numel, tuple(_agree(lanes)), routes)


def _agree(lanes: list[Lane]) -> Iterable[Collective]:
    """One sum in rank order for each depth of stages, then one maximum: as the engine does it."""
    for depth in zip_longest(*(lane.bound.stages for lane in lanes)):
        numel = sum(stage.num_summands for stage in depth if stage is not None)
        if numel:
            yield Collective(ORDERED, 4 * numel)
    words = sum(lane.bound.packer.max_words for lane in lanes)
    if words:
        yield Collective(ALL_REDUCE_MAX, 4 * words)


def _messages(lanes: list[Lane], workers: int) -> Iterable[Message]:
    """The first parts of all lanes travel together, then the second ones; each sum by itself."""
    route = lanes[0].route
    rounds = list(zip_longest(*(list(_parts(lane)) for lane in lanes)))
    for abreast in rounds:
        present = [coded for coded in abreast if coded is not None]
        parts = tuple(part for part, _ in present)
        if route.name == "allreduce":
            for part, packer in present:
                kind = ALL_REDUCE_HALF if packer.wire_dtype.itemsize == 2 else ALL_REDUCE
                yield Message((part,), Collective(kind, route.payload_bytes(packer, workers)))
        elif route.name == "allgather":
            nbytes = sum(route.payload_bytes(packer, workers) for _, packer in present)
            yield Message(parts, Collective(ALL_GATHER, nbytes))
        else:
            out = sum(route.payload_bytes(packer, workers) for _, packer in present)
            yield Message(
                parts,
                Collective(ALL_TO_ALL, out),
                Collective(ALL_GATHER, _merged_bytes(route, present, workers)),
            )


def _merged_bytes(route: Route, present: list[tuple[PartTraffic, Any]], workers: int) -> int:
    """What one owner sends to everybody: of all that a rank sends, what is not the all-to-all."""
    if workers == 1:
        return 0
    sent = sum(route.sent_bytes(packer, workers) for _, packer in present)
    swapped = sum(route.payload_bytes(packer, workers) // workers * (workers - 1) for _, packer in present)
    return (sent - swapped) // (workers - 1)


def _parts(lane: Lane) -> Iterable[tuple[PartTraffic, Any]]:
    """A lane's parts with the gradients that each stands for."""
    bound, name = lane.bound, str(lane.codec)
    key = speed_key(name, bound.phase, lane.route.name)
    if bound.phase.startswith(_UNCOMPRESSED):
        name = "dense"
    per_number = lane.layout.numel / max(1, bound.inner.numel)
    tensors = len(lane.layout.specs) / len(lane.parts)
    for part in lane.parts:
        numel = (part.last - part.first) * per_number
        yield PartTraffic(name, numel, lane.feedback != "none", key, tensors), part.packer


def speed_key(codec: str, phase: str, route: str) -> str:
    """The name under which a probe measures a codec: a phase, and a route that is not its own, are others.

    >>> speed_key("gradiveq:8", "project 32", "allreduce"), speed_key("dense", "", "sharded")
    ('gradiveq:8 project', 'dense sharded')
    """
    words = [codec, phase.partition(" ")[0], "sharded" if codec == "dense" and route == "sharded" else ""]
    return " ".join(filter(None, words))
