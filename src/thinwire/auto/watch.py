"""A watch over a decided run: do its steps, and messages on its link, still take what they took?"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

WINDOW = 25  # steps of which the median is compared
STRAYS = 1.25  # times slower or quicker than at the decision
LINK_WINDOWS = 2  # windows between two looks at the link
OTHER_LINK = 2.0  # times slower or quicker messages: another link
PATIENCE, MOST_PATIENCE = 2, 4  # windows in a row that must stray before it is decided anew
SHORT_BYTES, GROWTH, LONGEST_BYTES = 4 << 10, 4, 16 << 20  # messages of a look
LOOK_STEPS = 1 / 8  # of a step: a long message takes so long at least, where the longest does
NOTHING = 0.1  # times a short message: what a long one takes longer than that counts for nothing

LinkTimer = Callable[
    [int, int], float
]  # bytes and messages to the seconds of the quickest, on all ranks alike


@dataclass(frozen=True)
class LinkLook:
    """What messages took: a short one its latency, a long one the rate of the link besides."""

    nbytes: int
    long_s: float
    short_s: float

    @classmethod
    def first(cls, link_s: LinkTimer, step_s: float) -> LinkLook:
        """Finds a message that is long enough to see the rate and costs little of the steps between looks."""
        short_s, nbytes = link_s(SHORT_BYTES, 2), GROWTH * SHORT_BYTES
        long_s = link_s(nbytes, 2)
        while nbytes < LONGEST_BYTES and long_s < LOOK_STEPS * step_s:
            nbytes *= GROWTH
            long_s = link_s(nbytes, 2)
        return cls(nbytes, long_s, short_s)

    def again(self, link_s: LinkTimer, messages: int) -> LinkLook:
        """The same messages, now."""
        return LinkLook(self.nbytes, link_s(self.nbytes, messages), link_s(SHORT_BYTES, messages))

    @property
    def rate_s(self) -> float:
        """Of the long message, what its bytes took."""
        return max(self.long_s - self.short_s, NOTHING * self.short_s)

    def differs(self, other: LinkLook) -> bool:
        """Whether latency or rate are others than they were."""
        ratios = self.short_s / other.short_s, self.rate_s / other.rate_s
        return any(not 1 / OTHER_LINK < ratio < OTHER_LINK for ratio in ratios)


class Watch:
    """Counts windows that stray. Patience grows where deciding anew came to the same result."""

    def __init__(self) -> None:
        self.window = WINDOW
        self.link: LinkLook | None = None  # at the decision
        self._expected_s = 0.0
        self._patience = PATIENCE
        self._strayed = self._windows = 0

    def begin(self, expected_s: float, same: bool | None = None) -> None:
        """A decision whose steps take so long; `same`: whether it is the one before, made anew."""
        self._expected_s, self._strayed, self._windows = expected_s, 0, 0
        if same is not None:
            self._patience = min(MOST_PATIENCE, 2 * self._patience) if same else PATIENCE

    def strays(self, window_s: float, link_s: LinkTimer) -> str:
        """Why it should be decided anew after this window, or "" where it should not."""
        self._windows += 1
        if self._windows % LINK_WINDOWS == 0 and self.other_link(link_s):
            return "messages take another time than they did"
        if not self._expected_s:
            return ""
        ratio = window_s / self._expected_s
        self._strayed = self._strayed + 1 if not 1 / STRAYS < ratio < STRAYS else 0
        if self._strayed < self._patience:
            return ""
        return f"a step takes {1e3 * window_s:.4g} ms, not {1e3 * self._expected_s:.4g}"

    def other_link(self, link_s: LinkTimer) -> bool:
        """A look at the link; one that differs is confirmed by a second."""
        link = self.link
        if link is None:
            return False
        return all(link.again(link_s, messages).differs(link) for messages in (1, 3))
