"""The guard: watches the loss, makes the codec gentler when training fails, and stronger when it is safe."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from thinwire.errors import CodecError
from thinwire.schedules.base import Schedule, ScheduleState, Seen
from thinwire.texts import counted, one_of, option

LEAST = 1 / 16  # the lowest compression level but 0
CATCHING_UP = 0.9  # who is behind a reference must be nearer in the next window, by this factor
NOISE = 2.0  # standard errors that are no news beside a told reference
SURE = 4.0  # standard errors that are no news between means of the run's own: there are many such looks
LONGEST_WAIT = 1 << 20
DEEPEST = 20  # trials on plateaus that make the next one wait longer


@dataclass(frozen=True)
class Watch(ScheduleState):
    """What the guard knows. Values are losses: a metric that should grow is watched with its sign changed."""

    count: int = 0  # observations in the window under way
    total: float = 0.0  # their sum
    last: float = 0.0  # the last of them
    jumps: float = 0.0  # the sum of the squared differences of neighbours: noise, whatever the trend
    references: float = 0.0  # the sum of the references told
    told: int = 0  # how many were told
    baseline: float = math.inf  # the mean of the block that newer ones are compared with
    error: float = 0.0  # its standard error
    length: int = 0  # its windows
    windows: int = 0  # windows of the block under way
    means: float = 0.0  # the sum of their means
    errors: float = 0.0  # the sum of their squared standard errors
    block: int = 0  # windows after which the block under way is judged
    gained: bool = False  # since the last change
    good: int = 0  # windows in which nothing failed since the last change
    wait: int = 0  # good windows it takes to raise the level
    behind: float = 0.0  # how far the last window's mean was above its told reference, if it failed it
    on_trial: bool = False  # the level was raised, and not yet found safe
    lowered_from: float = 0.0  # the level before it was lowered on a plateau, until that is known to help
    fruitless: int = 0  # times that easing did not end a plateau
    ignored: int = 0  # plateaus that are left alone, because easing did not end the last one


@dataclass(frozen=True)
class Guard(Schedule[Watch]):
    """Looks at the mean of every `window` observed losses, and at its standard error.

    1. Windows make blocks: the block under way has `patience` windows and is compared with the one before.
       It has gained if it is lower by `gain` per `patience` windows, and by 4 standard errors. If it is sure
       (again 4) that it has not, this is a plateau. If noise hides which, blocks become twice as long.
    2. A window fails if its mean is above the reference by more than `tolerance` and the noise. The reference
       is what observe(loss, reference=) told (noise: 2 standard errors), else the block before (4 of the
       difference). Who meets a told reference may stay on a plateau, and who has come a tenth nearer to it
       since the last window does not fail. A loss that is not finite fails at once.
    3. A failure halves the compression level; below 1/16 it is 0: everything is sent.
    4. A plateau halves it on trial. If no gain follows it is put back, since the codec is not at fault; the
       next trial goes a halving deeper, and waits for three plateaus, then 7, 15, and so on. Nor is it at
       fault on a plateau at level 0: back to 1.
    5. `recover` windows without a failure, and with a gain, double the level. If that fails before it is
       found safe, the next raise waits twice as long.

    `gain` and `tolerance` are parts of the value they are compared with; mode=max is for metrics that grow.
    Standard errors take the noise of one observation to be independent of that of the next.
    """

    needs = "loss"

    window: int = option(20, int, "a number of observations, at least 1")
    patience: int = option(3, int, "a number of windows, at least 1")
    gain: float = option(0.01, float, "a part of the mean before, at least 0", repr)
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
        return Watch(wait=self.recover, block=self.patience)

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
            last=value,
            jumps=state.jumps + ((value - state.last) ** 2 if state.count else 0.0),
            references=state.references + reference,
            told=state.told + (seen.reference is not None),
        )

    def _judged(self, full: Watch) -> tuple[Watch, str]:
        """Steps 1 to 5, at the end of a window."""
        mean, error = full.total / full.count, _standard_error(full)
        goal = full.references / full.told if full.told else full.baseline
        noise = NOISE * error if full.told else SURE * math.hypot(error, full.error)
        worse = math.isfinite(goal) and mean - noise > goal + self.tolerance * abs(goal)
        distance = mean - goal if full.told and worse else 0.0
        catching_up = full.told > 0 and distance <= CATCHING_UP * full.behind
        state = replace(_emptied(full), behind=distance)
        if worse and not catching_up:
            why = (
                f"{self._show(mean)} is worse than {self._show(goal)} by more than {100 * self.tolerance:g} %"
            )
            return self._lowered(_from_here(state, mean, error, 1, self.patience)), why
        state, plateau = self._compared(state, mean, error)
        excused = full.told > 0 and not worse
        if plateau and not excused:
            return self._at_plateau(state, plateau)
        state = replace(state, good=state.good + (not worse))
        gains = excused or state.gained
        return self._well(state) if gains and state.good >= state.wait else (state, "")

    def _compared(self, state: Watch, mean: float, error: float) -> tuple[Watch, str]:
        """Step 1: a window joins the block under way; in words why this is a plateau, if it is one."""
        if math.isinf(state.baseline):
            return _from_here(state, mean, error, 1, state.block), ""
        windows = state.windows + 1
        state = replace(state, windows=windows, means=state.means + mean, errors=state.errors + error * error)
        mean, noise = state.means / windows, math.sqrt(state.errors) / windows
        fall, sure = state.baseline - mean, SURE * math.hypot(noise, state.error)
        apart = (state.length + windows) / 2  # windows between the middles of the two blocks
        wanted = self.gain * abs(state.baseline) * apart / self.patience
        enough = not state.lowered_from or windows >= self.patience  # one lucky window does not end a trial
        if enough and fall > 0 and fall >= max(wanted, sure):
            gained = _from_here(state, mean, noise, windows, self.patience)
            return replace(gained, gained=True, lowered_from=0.0, fruitless=0, ignored=0), ""
        if windows < state.block:
            return state, ""
        span = counted(windows, "window")
        why = f"{self._show(mean)} is no gain on {self._show(state.baseline)} for {span}"
        if fall + sure < wanted or (sure == 0 and fall <= wanted):
            return _from_here(state, mean, noise, windows, state.block), why
        return _from_here(state, mean, noise, windows, min(2 * state.block, LONGEST_WAIT)), ""

    def _at_plateau(self, state: Watch, why: str) -> tuple[Watch, str]:
        if state.on_trial:  # before the level was raised there were gains; will there be again?
            return replace(
                self._lowered(state),
                lowered_from=state.compression_level,
                wait=2 * max(state.wait, state.good),
            ), why
        if state.lowered_from or state.compression_level == 0:  # gentler it is no better
            fruitless = min(state.fruitless + 1, DEEPEST)
            state = _changed(state, state.lowered_from or 1.0)
            back = replace(state, lowered_from=0.0, fruitless=fruitless, ignored=2 ** (fruitless + 1) - 2)
            return back, f"{why} either"
        if state.ignored:
            return replace(state, ignored=state.ignored - 1), ""
        wait = max(state.wait, 2 * state.length)  # nobody should raise it sooner than a plateau can be seen
        lowered = _changed(state, _halved(state.compression_level, 1 + state.fruitless))
        return replace(lowered, lowered_from=state.compression_level, wait=wait), why

    def _well(self, state: Watch) -> tuple[Watch, str]:
        """Nothing failed for long enough: the last raise is found safe, and the level is raised."""
        if state.compression_level == 1.0:
            return replace(state, good=0, wait=self.recover, on_trial=False), ""
        wait = state.wait if not state.on_trial else max(self.recover, state.wait // 2)
        raised = _changed(self._renewed(state), min(1.0, max(LEAST, 2 * state.compression_level)))
        return replace(raised, wait=wait, on_trial=True), f"{counted(state.good, 'window')} without a failure"

    def _renewed(self, state: Watch) -> Watch:
        """Gains count from here on: the block under way is what newer ones are compared with."""
        if not state.windows:
            return state
        mean, noise = state.means / state.windows, math.sqrt(state.errors) / state.windows
        return _from_here(state, mean, noise, state.windows, self.patience)

    def _lowered(self, state: Watch) -> Watch:
        wait = min(2 * state.wait, LONGEST_WAIT) if state.on_trial else state.wait
        return replace(
            _changed(state, _halved(state.compression_level)), wait=wait, on_trial=False, lowered_from=0.0
        )

    def _signed(self, value: float) -> float:
        return value if self.mode == "min" else -value

    def _show(self, value: float) -> str:
        return f"{self._signed(value):.4g}"


def _halved(level: float, times: int = 1) -> float:
    low = level / 2**times
    return low if low >= LEAST else 0.0


def _changed(state: Watch, level: float) -> Watch:
    return replace(state, compression_level=level, gained=False, good=0)


def _from_here(state: Watch, mean: float, error: float, length: int, block: int) -> Watch:
    """The block with this mean is what newer ones are compared with."""
    empty = replace(state, windows=0, means=0.0, errors=0.0)
    return replace(empty, baseline=mean, error=error, length=length, block=block)


def _emptied(state: Watch) -> Watch:
    """A new window begins."""
    return replace(state, count=0, total=0.0, jumps=0.0, references=0.0, told=0)


def _standard_error(state: Watch) -> float:
    """Of a window's mean; 0 for a window of one observation, which knows nothing of its noise."""
    if state.count < 2:
        return 0.0
    return math.sqrt(state.jumps / (2 * (state.count - 1)) / state.count)
