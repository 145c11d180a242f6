"""Routes: which merges each takes, what it makes a rank send, and how payloads travel and merge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from types import MappingProxyType
from typing import ClassVar, Protocol, TypeVar

import torch
from torch import Tensor

from thinwire.clock import Clock
from thinwire.codecs.codec import Codec
from thinwire.codecs.coder import GatherPacker, Merge, Packer, aligned
from thinwire.codecs.scatter import ScatterPacker
from thinwire.codecs.two_phase import TwoPhasePacker
from thinwire.errors import PlanError
from thinwire.groups.base import Group, Pending, all_gather_bytes, all_reduce_bytes, all_to_all_bytes
from thinwire.tensors import Scratch
from thinwire.texts import check_name


class WireChunk(Protocol):
    """What a route sees of a part of a lane: its bytes, and what is needed to merge them."""

    @property
    def packer(self) -> Packer: ...

    @property
    def payload(self) -> Tensor: ...

    @property
    def shared(self) -> Tensor: ...

    def encode_again(self, payloads: Tensor, merged: Tensor) -> None:
        """At the owner of a share: what all ranks encoded of it to a payload of their mean."""


P = TypeVar("P", bound=WireChunk)
Message = Sequence[WireChunk]  # chunks of several lanes that travel together


@dataclass(frozen=True)
class Transport:
    """What a route needs besides the chunks."""

    group: Group
    scratch: Scratch
    clock: Clock


class Handle(ABC):
    """One message on its way. Its buffers are its own, because several handles are under way at once."""

    def merge(self) -> None:  # noqa: B027 - most have one leg only
        """Between two legs: waits for the first, merges what came, and starts the second."""

    @abstractmethod
    def arrive(self) -> Iterator[Tensor]:
        """Waits for the end; gives, chunk by chunk, what its packer decodes. Decode it before the next."""


class Route(ABC):
    """How payloads travel and merge: messages one behind the other, so that work and travel overlap."""

    name: ClassVar[str]
    takes: ClassVar[frozenset[Merge]]
    in_place: ClassVar[bool] = False  # True: sums arrive where the payload was, even in the gradient itself
    whole: ClassVar[bool] = False  # True: a lane is not cut into parts

    def check(self, codec: Codec) -> None:
        """Refuses codecs whose payloads this route cannot merge."""
        if codec.merge not in self.takes:
            raise PlanError(
                f'{codec} payloads merge by {codec.merge.value}, and route "{self.name}" takes only '
                f'{", ".join(sorted(m.value for m in self.takes))}: use route "{default_route_name(codec)}"'
            )

    def bind(self, packer: Packer) -> Packer:
        """The packer of a lane that goes this way."""
        return packer

    @abstractmethod
    def payload_bytes(self, packer: Packer, world: int) -> int:
        """Size of the buffer a part encodes into, padding included."""

    @abstractmethod
    def sent_bytes(self, packer: Packer, world: int) -> int:
        """What one rank sends for a part, beyond agreeing; exact."""

    def messages(self, lanes: Sequence[Sequence[P]]) -> list[list[P]]:
        """The chunks of lanes as messages: the first parts of all lanes travel together, then the second."""
        rounds = zip_longest(*lanes)
        return [[chunk for chunk in chunks if chunk is not None] for chunks in rounds]

    @abstractmethod
    def send(self, message: Message, index: int, transport: Transport) -> Handle:
        """Starts the first leg of a message; `index` counts the messages of a bucket."""


ALL_GATHER_WORLD = 4  # workers up to which codecs that gather were studied by all-gather, and take it


def default_route_name(codec: Codec, world: int = ALL_GATHER_WORLD, exact_mean: bool = False) -> str:
    """The route a codec takes when nobody says otherwise; few workers gather, as was studied.

    `exact_mean`: its error feedback needs the mean of what was sent, not what an owner makes of it.
    """
    if codec.merge is Merge.SUM:
        return "allreduce"
    if codec.merge is Merge.INT:
        return "sharded"
    two_phases = codec.reencodes and not exact_mean and world > ALL_GATHER_WORLD
    return "sharded" if two_phases else "allgather"


class AllReduce(Route):
    """One all-reduce per chunk.

    Sums depend on where a value lies in its buffer: bits may change when the buckets do.
    """

    name = "allreduce"
    takes = frozenset({Merge.SUM})
    in_place = True

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return packer.payload_bytes

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return all_reduce_bytes(self.payload_bytes(packer, world), world)

    def messages(self, lanes: Sequence[Sequence[P]]) -> list[list[P]]:
        """Every chunk by itself: putting several into one buffer would be a copy."""
        return [[chunk] for message in super().messages(lanes) for chunk in message]

    def send(self, message: Message, index: int, transport: Transport) -> Handle:
        (chunk,) = message
        with transport.clock.time("travel", index):
            sums = chunk.payload.view(chunk.packer.wire_dtype)
            return _AllReduceHandle(chunk.payload, transport.group.all_reduce(sums), index, transport)


class _AllReduceHandle(Handle):
    def __init__(self, payload: Tensor, pending: Pending, index: int, transport: Transport) -> None:
        self.payload, self.pending, self.index, self.transport = payload, pending, index, transport

    def arrive(self) -> Iterator[Tensor]:
        with self.transport.clock.time("travel", self.index):
            self.pending.wait()
        yield self.payload.unsqueeze(0)


class AllGather(Route):
    """One all-gather per message; payloads merge in rank order on every rank, so all get the same bits."""

    name = "allgather"
    takes = frozenset({Merge.INT, Merge.GATHER})

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return aligned(packer.payload_bytes)

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return all_gather_bytes(self.payload_bytes(packer, world), world)

    def send(self, message: Message, index: int, transport: Transport) -> Handle:
        with transport.clock.time("travel", index):
            payloads = [chunk.payload for chunk in message]
            send = payloads[0] if len(payloads) == 1 else torch.cat(payloads)
            room = transport.scratch.take(f"gathered {index}", send.numel() * transport.group.size)
            received = room.view(transport.group.size, -1)
            return _AllGatherHandle(
                message, received, transport.group.all_gather(send, received), index, transport
            )


class _AllGatherHandle(Handle):
    def __init__(
        self, message: Message, received: Tensor, pending: Pending, index: int, transport: Transport
    ) -> None:
        self.message, self.received, self.pending = message, received, pending
        self.index, self.transport = index, transport

    def arrive(self) -> Iterator[Tensor]:
        with self.transport.clock.time("travel", self.index):
            self.pending.wait()
        start = 0
        for chunk in self.message:
            yield self._merged(chunk, self.received[:, start : start + chunk.packer.payload_bytes])
            start += chunk.payload.numel()

    def _merged(self, chunk: WireChunk, payloads: Tensor) -> Tensor:
        if not chunk.packer.merges:
            return payloads
        with self.transport.clock.time("merge", self.index):
            nbytes = chunk.packer.merged_bytes(chunk.packer.num_granules)
            sums = self.transport.scratch.take("sums", nbytes)
            chunk.packer.merge(payloads, chunk.shared, sums)
            return sums.unsqueeze(0)


class Sharded(Route):
    """TernGrad's parameter server with localised parameters, spread over all ranks.

    1. all-to-all of the packed shards (a shard is a whole number of granules, the same for every owner)
    2. every owner merges what it received, in rank order
    3. all-gather of the merged shards; for shared-scale integers this is exact: no second rounding

    Payloads that cannot be added are decoded by their owner, who encodes the mean again (TwoPhasePacker).
    """

    name = "sharded"
    takes = frozenset(Merge)

    def check(self, codec: Codec) -> None:
        super().check(codec)
        if codec.merge is Merge.GATHER and not codec.reencodes:
            raise PlanError(
                f'{codec} cannot be encoded again by the owner of a share, as route "{self.name}" would: it '
                'codes whole columns, or behind stages that change from step to step; use route "allgather"'
            )

    def bind(self, packer: Packer) -> Packer:
        return TwoPhasePacker.of(packer) if isinstance(packer, GatherPacker) else packer

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return _shard_bytes(packer, world) * world

    def sent_bytes(self, packer: Packer, world: int) -> int:
        gathered = aligned(_merged_bytes(packer, world))
        return all_to_all_bytes(self.payload_bytes(packer, world), world) + all_gather_bytes(gathered, world)

    def send(self, message: Message, index: int, transport: Transport) -> Handle:
        return _ShardedHandle(message, index, transport)


class _ShardedHandle(Handle):
    """Two legs: shards to their owners, then sums to everybody."""

    def __init__(self, message: Message, index: int, transport: Transport) -> None:
        self.message, self.index, self.transport = message, index, transport
        self.world = transport.group.size
        self.gathered: Tensor
        with transport.clock.time("travel", index):
            rows = message[0].payload.view(self.world, -1) if len(message) == 1 else self._rows()
            self.received = transport.scratch.take(f"received {index}", rows.numel()).view(self.world, -1)
            self.pending: Pending = transport.group.all_to_all(rows, self.received)

    def merge(self) -> None:
        """Wait for the shards this rank owns, add them up, and start the all-gather."""
        with self.transport.clock.time("travel", self.index):
            self.pending.wait()
        with self.transport.clock.time("merge", self.index):
            owned = self._merge_owned()
        with self.transport.clock.time("travel", self.index):
            room = self.transport.scratch.take(f"gathered {self.index}", owned.numel() * self.world)
            self.gathered = room.view(self.world, -1)
            self.pending = self.transport.group.all_gather(owned, self.gathered)

    def arrive(self) -> Iterator[Tensor]:
        with self.transport.clock.time("travel", self.index):
            self.pending.wait()
        start = 0
        for chunk in self.message:
            nbytes = _merged_bytes(chunk.packer, self.world)
            yield self.gathered[:, start : start + nbytes]
            start += aligned(nbytes)

    def _rows(self) -> Tensor:
        """Row r holds what goes to rank r: its shard of every chunk."""
        nbytes = sum(chunk.payload.numel() for chunk in self.message)
        rows = self.transport.scratch.take(f"message {self.index}", nbytes).view(self.world, -1)
        start = 0
        for chunk in self.message:
            shard = _shard_bytes(chunk.packer, self.world)
            rows[:, start : start + shard] = chunk.payload.view(self.world, -1)
            start += shard
        return rows

    def _merge_owned(self) -> Tensor:
        sizes = [_merged_bytes(chunk.packer, self.world) for chunk in self.message]
        owned = self.transport.scratch.take(f"owned {self.index}", sum(map(aligned, sizes)))
        start = shard_start = 0
        for chunk, size in zip(self.message, sizes, strict=True):
            shard = _shard_bytes(chunk.packer, self.world)
            payloads, sums = self.received[:, shard_start : shard_start + shard], owned[start : start + size]
            if chunk.packer.reencodes:
                chunk.encode_again(payloads, sums)
            else:
                chunk.packer.merge(payloads, chunk.shared, sums)
            owned[start + size : start + aligned(size)].zero_()
            start, shard_start = start + aligned(size), shard_start + shard
        return owned


class Scatter(Route):
    """A reduce-scatter: rank r gets the mean of the tensors in row r of the lane, and nothing of the others.

    1. all-to-all: row r, as it is packed, goes to rank r
    2. every rank merges what it received, in rank order, and decodes it

    A lane is N times the same tensors, by shape: N rows. For FSDP2; no user names it.
    """

    name = "scatter"
    takes = frozenset(Merge)
    whole = True

    def check(self, codec: Codec) -> None:
        if codec.learns:
            raise PlanError(
                f"{codec} learns from the mean of whole tensors, and here every rank gets only its rows: use "
                'a codec that learns nothing, for example "qsgd:4"'
            )

    def bind(self, packer: Packer) -> Packer:
        return ScatterPacker(packer)

    def payload_bytes(self, packer: Packer, world: int) -> int:
        return packer.payload_bytes

    def sent_bytes(self, packer: Packer, world: int) -> int:
        return all_to_all_bytes(self.payload_bytes(packer, world), world)

    def send(self, message: Message, index: int, transport: Transport) -> Handle:
        return _ScatterHandle(message, index, transport)


class _ScatterHandle(_ShardedHandle):
    """One leg: rows to their owners."""

    def merge(self) -> None:
        with self.transport.clock.time("travel", self.index):
            self.pending.wait()
        with self.transport.clock.time("merge", self.index):
            self.gathered = self._merge_owned().unsqueeze(0)

    def arrive(self) -> Iterator[Tensor]:
        start = 0
        for chunk in self.message:
            nbytes = _merged_bytes(chunk.packer, self.world)
            yield self.gathered[:, start : start + nbytes]
            start += aligned(nbytes)


def _shard_bytes(packer: Packer, world: int) -> int:
    return -(-packer.num_granules // world) * packer.granule_bytes


def _merged_bytes(packer: Packer, world: int) -> int:
    return packer.merged_bytes(-(-packer.num_granules // world))


ROUTES: Mapping[str, Route] = MappingProxyType(
    {route.name: route for route in (AllReduce(), AllGather(), Sharded())}
)


SCATTER = Scatter()


def route_named(name: str) -> Route:
    if name == SCATTER.name:
        return SCATTER
    check_name("route", name, ROUTES)
    return ROUTES[name]


def route_name(codec: Codec, asked: str | None, world: int, exact_mean: bool) -> str:
    """The route that was asked for, if the codec can take it; else its default."""
    name = asked or default_route_name(codec, world, exact_mean)
    route_named(name).check(codec)
    if exact_mean and codec.merge is Merge.GATHER and name == "sharded":
        raise PlanError(
            'this error feedback needs the mean of what all ranks sent, and on route "sharded" owners '
            f'encode the mean of {codec} again: use route "allgather"'
        )
    return name
