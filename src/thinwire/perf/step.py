"""A step: buckets, ready one after the other, served by one ordered thread behind the backward pass.

The thread takes a bucket when it is ready and the one before is done. For each bucket, as the engine does:

    prepare, agree                                  thread, then wire; nothing else goes on
    every part:  encode | travel ...  keep          the wire takes parts in order, the thread goes on
    every part:  wait | merge | travel back ...     only where sums are made on the way
    every part:  wait | decode
    finish

so a step is forward + max(backward, the last bucket's end).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class PartTimes:
    """Seconds of one message: on the thread (encode, keep, merge, decode) and on the wire (out, back)."""

    encode: float = 0.0
    out: float = 0.0
    keep: float = 0.0
    merge: float = 0.0
    back: float | None = None  # None: nothing comes back, what went out is decoded
    decode: float = 0.0

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

    def end(self, start: float) -> float:
        """When the thread is done with this bucket if it begins at `start`."""
        now = start + self.before + self.prepare + self.agree
        for parts in self.routes:
            now = _travel(parts, now)
        return now + self.finish + self.after


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
    forward_s: float,
    backward_s: float,
    buckets: Sequence[BucketTimes],
    contends: float = 0.0,
    wire_contends: float = 0.0,
) -> StepTimes:
    """Serves the buckets in order.

    What goes on during the backward pass may prolong it: by `contends` of the codecs' time, and by
    `wire_contends` of the wire's, where processors move the bytes.

    >>> wire = BucketTimes(ready=2.0, routes=((PartTimes(out=3.0),),))
    >>> step_times(1.0, 2.0, [wire]).step_s
    6.0
    """
    free = delay = 0.0
    for bucket in buckets:
        start = max(free, bucket.ready + delay)
        free = bucket.end(start)
        beside = max(0.0, backward_s + delay - start)  # what is left of the backward pass
        delay += min(beside, contends * bucket.codec_s + wire_contends * bucket.wire_s)
    step_s = forward_s + max(backward_s + delay, free)
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
