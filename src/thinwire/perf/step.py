"""A step: buckets, ready one after the other, served by one ordered thread behind the backward pass.

The thread takes a bucket when it is ready and the one before is done. For each bucket, as the engine does:

    prepare, agree                                  thread, then wire; nothing else goes on
    every part:  encode | travel ...  keep          the wire takes parts in order, the thread goes on
    every part:  wait | merge | travel back ...     only where sums are made on the way
    every part:  wait | decode
    finish

so a step is forward + max(backward, the last bucket's end). Beside the backward pass both are slower: what
a bucket takes there (`Beside`) and what it takes alone are two numbers, and a bucket that outlives the pass
goes on at the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace


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
        pace = max(0.0, 1 - slower.lost_s / slower.taken_s) if slower.taken_s else 1.0  # of the backward pass
        left = max(0.0, backward_s - done)
        spent = min(slower.taken_s, left / pace if pace else math.inf)
        rest = 1 - spent / slower.taken_s if slower.taken_s else 1.0  # of the bucket, when that pass is over
        now, done = now + spent + rest * bucket.taken_s, done + pace * spent
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
