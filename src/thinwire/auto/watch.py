"""The step timer, and a watch over a decided run: do steps and messages still take what they took?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median
from typing import Any, Protocol


@dataclass
class StepMarks:
    """One step, in seconds of a clock: when each bucket was ready, and when all means were there."""

    ready: list[float]
    end: float | None = None


@dataclass(frozen=True)
class Passes:
    """What a step computes, seen from its exchange.

    `rest_s`: from the end of one exchange to the first bucket of the next, with nothing to send: update,
    forward pass, the start of the backward pass. `ready_s`: the buckets, counted from the first of them.
    """

    rest_s: float
    ready_s: tuple[float, ...]

    @classmethod
    def of(cls, steps: list[StepMarks]) -> Passes | None:
        """Medians over steps one behind the other; None if there are none with the same buckets."""
        pairs = [
            (step, after)
            for step, after in pairwise(steps)
            if step.end is not None and len(step.ready) == len(steps[-2].ready)
        ]
        if not pairs:
            return None
        rest = median(after.ready[0] - step.end for step, after in pairs if step.end is not None)
        readies = zip(*(step.ready for step, _ in pairs), strict=True)
        firsts = [step.ready[0] for step, _ in pairs]
        ready = tuple(median(t - first for t, first in zip(times, firsts, strict=True)) for times in readies)
        return cls(rest, ready)


@dataclass
class StepTimer:
    """The steps since it was last asked to forget. A step lasts from its first bucket to the next step's.

    >>> pace = StepTimer()
    >>> for now in (1.0, 1.5, 2.25): pace.begin(now)
    >>> pace.durations(skip=0)
    [0.5, 0.75]
    """

    steps: list[StepMarks] = field(default_factory=list)

    def begin(self, now: float) -> None:
        """The first bucket of a step is ready."""
        self.steps.append(StepMarks([]))
        self.ready(now)

    def ready(self, now: float) -> None:
        """A bucket is ready (the first one too)."""
        self.steps[-1].ready.append(now)

    def end(self, now: float) -> None:
        """The means of a step are there, for its backward pass to end."""
        if self.steps:
            self.steps[-1].end = now

    def durations(self, skip: int) -> list[float]:
        """Seconds of the steps that are over, but for the first ones."""
        firsts = [step.ready[0] for step in self.steps]
        return [after - first for first, after in pairwise(firsts)][skip:]

    def forget(self) -> None:
        """From here on only the step that is beginning counts."""
        del self.steps[:-1]


WINDOW = 25  # steps of which the median is compared
SETTLING = 5  # steps after a decision until the link is looked at: token buckets are as steps leave them
STRAYS = 1.2  # times slower or quicker than at the decision
LINK_WINDOWS = 2  # windows between two looks at the link
OTHER_LINK = 2.0  # times slower or quicker messages: another link
PATIENCE, MOST_PATIENCE = 2, 4  # windows in a row that must stray before it is decided anew
SHORT_BYTES, GROWTH, LONGEST_BYTES = 4 << 10, 4, 16 << 20  # messages of a look
LOOK_STEPS = 1 / 8  # of a step: a long message takes so long at least, where the longest does
SEEN = 3.0  # times a short message: a long one should take so long, if that is less than a step
OTHER = "messages take another time than they did"
NOTHING = 0.5  # times a short message: what a long one takes longer than that counts for nothing
FLOOD_WINDOWS = 4  # windows between two floods, which see the rate behind a token bucket
FLOOD_SHARE = 0.03  # of the steps between two floods: where a flood takes longer there are none

LinkTimer = Callable[[int, int], float]  # bytes and messages to the seconds of the quickest, all ranks alike


class LinkTimes(Protocol):
    """The link of a run, as its autotuner can look at it."""

    def link_s(self, nbytes: int, messages: int) -> float:
        """Seconds of the quickest of some messages of so many bytes, now; collective."""

    def drain(self) -> None:
        """Empties token buckets; collective."""

    @property
    def flood_bytes(self) -> int:
        """What plain DDP sends in a step: a token bucket that codecs do not empty may hold less."""


@dataclass(frozen=True)
class LinkLook:
    """What messages took: a short one its latency, a long one the rate of the link besides."""

    nbytes: int
    long_s: float
    short_s: float

    @classmethod
    def of(cls, nbytes: int, link_s: LinkTimer) -> LinkLook:
        """Always in the same order: the short one finds a token bucket as steps have left it."""
        short_s = link_s(SHORT_BYTES, 3)
        return cls(nbytes, link_s(nbytes, 2), short_s)

    def to_dict(self) -> dict[str, Any]:
        """By the names of a decision's fields."""
        return {"link_bytes": self.nbytes, "link_s": self.long_s, "short_s": self.short_s}

    @property
    def rate_s(self) -> float:
        """Of the long message, what its bytes took."""
        return max(self.long_s - self.short_s, NOTHING * self.short_s)

    def differs(self, other: LinkLook) -> bool:
        """Whether latency or rate are others than they were."""
        ratios = self.short_s / other.short_s, self.rate_s / other.rate_s
        return any(not 1 / OTHER_LINK < ratio < OTHER_LINK for ratio in ratios)


def long_message(link_s: LinkTimer, step_s: float) -> int:
    """Bytes of a message that is long enough to see the rate and costs little of the steps between looks."""
    short_s, nbytes = link_s(SHORT_BYTES, 2), GROWTH * SHORT_BYTES
    enough_s = max(LOOK_STEPS * step_s, min(step_s, SEEN * short_s))
    while nbytes < LONGEST_BYTES and link_s(nbytes, 1) < enough_s:
        nbytes *= GROWTH
    return nbytes


class DecisionWatch:
    """Counts windows and looks at the link that stray.

    Steps of a codec may fit into a token bucket, and so do the messages of a look. What is behind it shows
    when it is empty: a look that differs counts only if one with empty buckets differs too, and now and then
    a flood shows whether the rate behind the bucket has grown, so that plain DDP may pay again.

    Patience grows where deciding anew came to the same result.
    """

    def __init__(self) -> None:
        self.link: LinkLook | None = None  # soon after the decision
        self._drained: LinkLook | None = None  # at the decision, with empty token buckets
        self._flood_s = 0.0  # of a flood soon after the decision; 0: floods show no more than looks
        self._nbytes = 0  # of the long message of a look
        self._expected_s = 0.0
        self._patience = PATIENCE
        self._strayed = self._windows = self._settled = 0
        self._others = 0  # looks in a row that saw another link

    def begin(self, expected_s: float, link: LinkLook | None = None, same: bool | None = None) -> None:
        """A decision whose steps take so long; `same`: whether it is the one before, made anew."""
        self._expected_s, self._strayed, self._windows, self.link = expected_s, 0, 0, link
        self._nbytes, self._others, self._drained, self._settled = 0, 0, None, 0
        self._flood_s = 0.0
        if same is not None:
            self._patience = min(MOST_PATIENCE, 2 * self._patience) if same else PATIENCE

    def look_drained(self, actions: LinkTimes) -> None:
        """At the decision: a link that changes before the steps settle would be taken for the old one."""
        self._nbytes = long_message(actions.link_s, self._expected_s)
        self._drained = self._look_drained(actions)

    @property
    def window(self) -> int:
        """Steps until the next look."""
        return SETTLING if self.link is None else WINDOW

    def strays(self, window_s: float, actions: LinkTimes) -> str:
        """Why it should be decided anew after this window, or "" where it should not."""
        if self.link is None:
            return self._settle(window_s, actions)
        self._windows += 1
        if self._looks_other(actions) or self._floods_quicker(actions):
            return OTHER
        ratio = window_s / self._expected_s
        self._strayed = self._strayed + 1 if not 1 / STRAYS < ratio < STRAYS else 0
        if self._strayed < self._patience:
            return ""
        return f"a step takes {1e3 * window_s:.4g} ms, not {1e3 * self._expected_s:.4g}"

    def other_link(self, link_s: LinkTimer) -> bool:
        """Whether a look at the link differs from the one soon after the decision."""
        return self.link is not None and LinkLook.of(self.link.nbytes, link_s).differs(self.link)

    def _looks_other(self, actions: LinkTimes) -> bool:
        """Whether looks in a row differ, and one with empty token buckets differs too.

        Where it does not, the first look had found a bucket that was filling: it is taken anew.
        """
        if not self._others and self._windows % LINK_WINDOWS:
            return False
        self._others = self._others + 1 if self.other_link(actions.link_s) else 0
        if self._others < self._patience:
            return False
        if self._drained is None or self._look_drained(actions).differs(self._drained):
            return True
        self._others, self.link = 0, LinkLook.of(self._nbytes, actions.link_s)
        return False

    def _floods_quicker(self, actions: LinkTimes) -> bool:
        """Whether two floods in a row are much quicker than the one soon after the decision.

        Slower ones mean nothing: the bucket was not as full, and a slower link shows in the steps.
        """
        if not self._flood_s or self._windows % FLOOD_WINDOWS:
            return False
        quicker_s = self._flood_s / OTHER_LINK
        return all(actions.link_s(actions.flood_bytes, 1) < quicker_s for _ in range(2))

    def _settle(self, step_s: float, actions: LinkTimes) -> str:
        """Finds the message to look with, and some steps later what it takes; "" if all is as it was."""
        self._nbytes = self._nbytes or long_message(actions.link_s, step_s)
        self._settled += 1
        if self._settled > 1:
            self.link = LinkLook.of(self._nbytes, actions.link_s)
        before = self._drained
        if before is None:
            return ""
        if self.link is not None:
            self._flood_s = self._flood(self.link, step_s, actions)
        if self._patience > PATIENCE:  # looks differ where deciding anew came to the same result
            return ""
        changed = all(self._look_drained(actions).differs(before) for _ in range(2))
        return OTHER if changed else ""

    def _flood(self, link: LinkLook, step_s: float, actions: LinkTimes) -> float:
        """Seconds of a flood where it is much slower than looks promise, and not too long; else 0."""
        nbytes = actions.flood_bytes
        if nbytes <= link.nbytes:
            return 0.0
        flood_s = actions.link_s(nbytes, 1)
        promised_s = link.short_s + link.rate_s * nbytes / link.nbytes
        short = flood_s < FLOOD_SHARE * FLOOD_WINDOWS * WINDOW * step_s
        return flood_s if short and flood_s > OTHER_LINK * promised_s else 0.0

    def _look_drained(self, actions: LinkTimes) -> LinkLook:
        actions.drain()
        return LinkLook.of(self._nbytes, actions.link_s)
