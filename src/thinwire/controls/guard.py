"""The guard: watches the loss, makes the codec gentler when training fails, and stronger when it is safe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from thinwire.controls.base import Control, Seen, Strength
from thinwire.errors import CodecError
from thinwire.options import one_of, option

LEAST = 1 / 16  # the smallest share but 0
CATCHING_UP = 0.9  # who is behind a reference must be nearer in the next window, by this factor
NOISE = 2.0  # standard errors of a window's mean that are no news
LONGEST_WAIT = 1 << 20


@dataclass(frozen=True)
class Watch(Strength):
    """What the guard knows. Values are losses: a metric that should grow is watched with its sign changed."""

    count: int = 0  # observations in the window under way
    total: float = 0.0  # their sum
    squares: float = 0.0  # the sum of their squares
    references: float = 0.0  # the sum of the references told
    told: int = 0  # how many were told
    best: float = math.inf  # the best window's mean since the last lowering
    stale: int = 0  # windows since the best one
    good: int = 0  # windows in which nothing failed since the last change
    wait: int = 0  # good windows it takes to raise the share
    patience: int = 0  # windows without gain that are a failure at share 1
    behind: float = 0.0  # how far the last window's mean was above its told reference, if it failed it
    on_trial: bool = False  # the share was raised, and not yet found safe


@dataclass(frozen=True)
class Guard(Control[Watch]):
    """Looks at the mean of every `window` observed losses.

    1. A window fails if its mean is above the reference by more than `tolerance` (and two standard errors),
       or if there was no gain of `gain` on the best mean for `patience` windows. The reference is what
       observe(loss, reference=) told, else the best mean. Who meets a told reference may stay on a plateau,
       and who has come a tenth nearer to it since the last window does not fail. A loss that is not finite
       fails at once.
    2. A failure halves the share; below 1/16 it is 0: everything is sent. The best mean starts anew.
    3. `recover` windows without a failure, and with a gain, double it again. If that fails before it is found
       safe, the next raise waits twice as long.
    4. A plateau at share 0 is not the codec's fault: back to share 1, which gets twice the patience.

    `gain` and `tolerance` are parts of the value they are compared with; mode=max is for metrics that grow.
    """

    needs = "loss"

    window: int = option(20, int, "a number of observations, at least 1")
    patience: int = option(3, int, "a number of windows, at least 1")
    gain: float = option(0.01, float, "a part of the best mean, at least 0", repr)
    tolerance: float = option(0.2, float, "a part of the reference, at least 0", repr)
    recover: int = option(5, int, "a number of windows, at least 1")
    mode: str = option("min", one_of("min", "max"), '"min" (a loss) or "max" (an accuracy)')

    def __post_init__(self) -> None:
        for name in ("window", "patience", "recover"):
            if getattr(self, name) < 1:
                raise CodecError(f"guard: {name}={getattr(self, name)} must be at least 1")
        for name in ("gain", "tolerance"):
            if not getattr(self, name) >= 0:
                raise CodecError(f"guard: {name}={getattr(self, name):g} must be at least 0")

    def begin(self, theta: float | None) -> Watch:
        return Watch(wait=self.recover, patience=self.patience)

    def decide(self, state: Watch, seen: Seen, step: int, theta: float | None) -> tuple[Watch, str]:
        if seen.loss is None:
            return state, ""
        if not math.isfinite(seen.loss):
            return self._lowered(_emptied(state)), f"the observed value is {seen.loss}"
        state = self._with(state, seen)
        return self._judged(state) if state.count >= self.window else (state, "")

    def _with(self, state: Watch, seen: Seen) -> Watch:
        assert seen.loss is not None
        value, reference = self._signed(seen.loss), self._signed(seen.reference or 0.0)
        return replace(
            state,
            count=state.count + 1,
            total=state.total + value,
            squares=state.squares + value * value,
            references=state.references + reference,
            told=state.told + (seen.reference is not None),
        )

    def _judged(self, full: Watch) -> tuple[Watch, str]:
        """Steps 1 to 4, at the end of a window."""
        mean, error = full.total / full.count, _standard_error(full)
        goal = full.references / full.told if full.told else full.best
        gained = math.isinf(full.best) or mean < full.best - self.gain * abs(full.best)
        worse = math.isfinite(goal) and mean - NOISE * error > goal + self.tolerance * abs(goal)
        excused = full.told > 0 and not worse
        distance = mean - goal if full.told and worse else 0.0
        catching_up = distance <= CATCHING_UP * full.behind if full.told else gained
        state = replace(_emptied(full), behind=distance)
        if gained:
            state = replace(state, best=mean, stale=0, patience=self.patience)
        else:
            state = replace(state, stale=state.stale + 1)
        if worse and not catching_up:
            why = (
                f"{self._show(mean)} is worse than {self._show(goal)} by more than {100 * self.tolerance:g} %"
            )
            return self._lowered(replace(state, best=mean)), why
        if not excused and state.stale >= (state.patience if state.share == 1.0 else self.patience):
            return self._at_plateau(state, mean)
        state = replace(state, good=state.good + (not worse))
        gains = excused or state.stale < state.good  # since the last change
        return self._well(state) if gains and state.good >= state.wait else (state, "")

    def _at_plateau(self, state: Watch, mean: float) -> tuple[Watch, str]:
        if state.share > 0:
            why = f"{self._show(mean)} is no gain on {self._show(state.best)} for {state.stale} windows"
            return self._lowered(replace(state, best=mean)), why
        patience = min(2 * state.patience, LONGEST_WAIT)
        state = replace(state, share=1.0, stale=0, good=0, patience=patience, on_trial=True)
        return state, f"{self._show(mean)} does not fall when everything is sent either"

    def _well(self, state: Watch) -> tuple[Watch, str]:
        """Nothing failed for long enough: the last raise is found safe, and the share is raised."""
        if state.share == 1.0:
            return replace(state, good=0, wait=self.recover, on_trial=False), ""
        wait = state.wait if not state.on_trial else max(self.recover, state.wait // 2)
        share = min(1.0, max(LEAST, 2 * state.share))
        raised = replace(state, share=share, stale=0, good=0, wait=wait, on_trial=True)
        return raised, f"{state.good} windows without a failure"

    def _lowered(self, state: Watch) -> Watch:
        share = state.share / 2 if state.share / 2 >= LEAST else 0.0
        wait = min(2 * state.wait, LONGEST_WAIT) if state.on_trial else state.wait
        return replace(state, share=share, stale=0, good=0, wait=wait, on_trial=False)

    def _signed(self, value: float) -> float:
        return value if self.mode == "min" else -value

    def _show(self, value: float) -> str:
        return f"{self._signed(value):.4g}"


def _emptied(state: Watch) -> Watch:
    """A new window begins."""
    return replace(state, count=0, total=0.0, squares=0.0, references=0.0, told=0)


def _standard_error(state: Watch) -> float:
    mean = state.total / state.count
    return math.sqrt(max(0.0, state.squares / state.count - mean * mean) / state.count)
