"""Traffic: what travels for a bucket, act by act. Made by `wire.py` from real plans; has no times yet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

ALL_REDUCE, ALL_TO_ALL, ALL_GATHER, ALL_REDUCE_MAX = (
    "all_reduce",
    "all_to_all",
    "all_gather",
    "all_reduce_max",
)  # the acts of a group
ALL_REDUCE_HALF = "all_reduce_half"  # of 2-byte floats: a CPU adds them more slowly
BROADCAST = "broadcast"  # inside a node: what leaders exchanged, to all of it
ORDERED = "ordered"  # floats added in rank order: shares to their owners, sums back
SMALL_BYTES = 16384  # at most so many bytes a worker go straight to every peer (tested against the groups)


@dataclass(frozen=True)
class Act:
    """A collective: what is done, and its bytes: a worker's own (gather), else those of the whole buffer."""

    kind: str
    nbytes: int


@dataclass(frozen=True)
class Parcel:
    """Elements of a message that one codec codes; `remembers`: what it does not send is held back.

    `key` is the name under which a probe measures it: codec, phase, and whether sums are made on the way.
    """

    codec: str
    numel: float
    remembers: bool = False
    key: str = ""
    num_tensors: float = 0.0


@dataclass(frozen=True)
class Message:
    """Parcels that travel together: out, and if sums are made on the way, back."""

    parcels: tuple[Parcel, ...]
    out: Act
    back: Act | None = None

    @property
    def gathers(self) -> bool:
        """True if every worker decodes the payloads of all."""
        return self.out.kind == ALL_GATHER

    @property
    def acts(self) -> Iterator[Act]:
        yield self.out
        if self.back is not None:
            yield self.back


@dataclass(frozen=True)
class BucketTraffic:
    """One bucket: what is agreed on first, then messages; those of one route follow each other closely."""

    numel: int
    agree: tuple[Act, ...]
    routes: tuple[tuple[Message, ...], ...]

    @property
    def acts(self) -> Iterator[Act]:
        yield from self.agree
        for messages in self.routes:
            for message in messages:
                yield from message.acts


@dataclass(frozen=True)
class Traffic:
    """One step's buckets in a phase of the codec, and the share of all steps that are like it."""

    phase: str
    share: float
    buckets: tuple[BucketTraffic, ...]
