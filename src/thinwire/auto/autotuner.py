"""The autotuner of an `auto` run: measures, tries, decides, and goes on watching, on all ranks alike."""

from __future__ import annotations

import logging
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

from thinwire.auto.qualities import DENSE, Selection, candidates, choices
from thinwire.auto.race import Decision, Race, decide
from thinwire.auto.watch import DecisionWatch, LinkLook, Passes, StepTimer
from thinwire.perf.fit import Forecasts

LOG = logging.getLogger("thinwire")
MAX_STEPS = 66  # until a decision
MAX_TRIALS_S, MAX_ROUNDS_S = 200.0, 400.0  # no further trial, no further round when all took so long
WARM_UP = 3  # steps before anything is measured: DDP rebuilds its buckets, buffers are allocated
SWITCH_STEPS = 2  # after a switch: lanes and buffers are made; AGAIN_STEPS where they are there
AGAIN_STEPS = 1
TIMED_STEPS = 4
LONG_S, VERY_LONG_S = 2.0, 10.0  # of steps that long fewer are timed
WORTH = 0.08  # communication is less of plain DDP's step: nothing is tried unless a forecast says otherwise
SURE_TRIALS = 2  # where communication counts so many choices are tried, whatever is forecast
NOTHING_LEFT = 0.04  # a step that is so little longer than its computing cannot get much shorter
GIVE_UP = 1.6  # times the best step: after the first step that long a trial is over


class Actions(Protocol):
    """What a autotuner can do, the same on all ranks; choices are texts: a codec, or one "by nodes"."""

    def adopt(self, text: str) -> None:
        """Gradients travel by this choice, whose state is loaded next."""

    def steer(self, text: str) -> None:
        """From this step on gradients travel by this choice; collective."""

    def agree(self, values: Sequence[float]) -> list[float]:
        """The largest of every number over all ranks; collective."""

    def link_s(self, nbytes: int, messages: int) -> float:
        """Seconds of the quickest of some messages of so many bytes, now; collective."""

    def drain(self) -> None:
        """Empties token buckets, so that steps measured next are as slow as all later ones; collective."""

    @property
    def flood_bytes(self) -> int:
        """What plain DDP sends in a step: a token bucket that codecs do not empty may hold less."""

    def measure(self, codecs: Sequence[str], step_s: float) -> None:
        """Probes links and codecs; collective."""

    def forecasts(self, texts: Sequence[str], passes: Passes, measured_s: Mapping[str, float]) -> Forecasts:
        """Seconds of a step by choice, fitted to those measured; without choices that cannot serve."""


@dataclass(frozen=True)
class Trial:
    """Steps under one codec; of the first `warm` the time does not count."""

    codec: str
    warm: int
    timed: int


Script = Generator[Trial, list[float], None]  # stages, and the times of each, which all ranks agreed on


class Autotuner:
    """Runs through stages. `begin_step` is called when the first bucket of a step is ready.

    1. plain DDP; the link is probed, which also empties token buckets; plain DDP again, measured
    2. the model, fitted to those steps, says what is worth a trial: every codec of the quality, and where
       workers share `nodes` every codec by nodes. Each trial improves the fit
    3. the best and plain DDP take turns until one of them is surely quicker
    4. watched: if steps or messages take another time than at the decision, all over again
    """

    def __init__(self, quality: str, actions: Actions, workers: int = 2, nodes: bool = False) -> None:
        allowed = choices(quality, nodes)
        self.quality, self.actions, self.workers = quality, actions, workers
        self.choices = allowed if workers > 1 else ()
        self.pace = StepTimer()
        self.codec = DENSE
        self.vetoed: dict[str, int] = {}  # codecs that are out for the rest of the run, and since which step
        self.step = 0
        self.decisions: list[Decision] = []
        self.decided = False
        self._watch = DecisionWatch()
        self._resumed = False  # a decision was loaded, and the link has yet to be looked at
        self._race = Race()
        self._forecasts = Forecasts({}, {}, 0.0)
        self._compute_s = 0.0  # of a step, without communication
        self._forecasting_s = 0.0
        self._began = 0
        self._trial_s = 0.0
        self._script: Script | None = None
        self._stage = Trial(DENSE, 0, 0)
        self._start()

    def begin_step(self, now: float) -> None:
        """Moves on to the next stage where the one before is over; may switch the codec of this step."""
        self.pace.begin(now)
        if self._resumed:
            self._look_after_resume()
        elif len(self.pace.steps) > self._stage.warm + self._stage.timed:
            self._over()
        self.step += 1

    def veto(self) -> None:
        """The codec of the step before had a mean that is not finite where plain DDP's is: never again.

        That step was sent again, as it is. All ranks know it, before the step that begins: all is measured
        anew, without the codec.
        """
        if self.codec == DENSE:
            return
        codec = Selection.of(self.codec).codec
        LOG.warning("step %d: a mean of %s was not finite where plain DDP's is: vetoed", self.step - 1, codec)
        self._leave_out({codec: self.step - 1})
        self.pace, self._resumed = StepTimer(), False
        self._begin(Trial(DENSE, 0, 0))
        self._start()

    def _leave_out(self, vetoed: Mapping[str, int]) -> None:
        self.vetoed |= vetoed
        self.choices = tuple(text for text in self.choices if Selection.of(text).codec not in self.vetoed)

    @property
    def decision(self) -> Decision | None:
        """The one in force, or the last one while something else is tried."""
        return self.decisions[-1] if self.decisions else None

    @property
    def explanation(self) -> str:
        """What was decided and why, or what is being tried."""
        lines = [
            f"auto: never {codec} again, in step {step} its mean was not finite where plain DDP's is"
            for codec, step in self.vetoed.items()
        ]
        if self.decided or not self._stage.timed:
            lines.append(str(self.decision or ""))
        else:
            lines.append(f"auto: not decided yet, step {self.step} is a trial of {self.codec}")
        return "\n".join(filter(None, lines))

    def state_dict(self) -> dict[str, Any]:
        """The codec in force, and the decision if there is one: a resumed run goes on with it."""
        decided = self.decision.to_dict() if self.decided and self.decision is not None else None
        return {
            "quality": self.quality,
            "codec": self.codec,
            "step": self.step,
            "decision": decided,
            "vetoed": dict(self.vetoed),
        }

    def load(self, saved: Mapping[str, Any]) -> None:
        """Goes on with a decision unless the link is another; without one it measures anew.

        A decision for a node layout that no longer exists is discarded: what was held back is sent by all
        workers.
        """
        self._leave_out(saved.get("vetoed", {}))
        was = Selection.of(saved["codec"])
        without_nodes = was.by_nodes and str(was) not in self.choices
        self.codec, self.step = was.codec if without_nodes else str(was), int(saved["step"])
        self.actions.adopt(self.codec)
        self.pace = StepTimer()
        if saved["decision"] is None or without_nodes:
            self._start()
            return
        self.decisions.append(Decision(**saved["decision"]))
        self._resumed = True

    def _start(self) -> None:
        """Everything is measured from here on."""
        self.decided = False
        self._race = Race()
        self._began, self._trial_s, self._forecasting_s = self.step, 0.0, 0.0
        self._stage = Trial(self.codec, 0, 0)
        self._script = self._stages() if self.choices else None  # begins with the next step
        if self._script is not None:
            return
        alone = "a worker alone has nothing to send"
        why = alone if self.workers == 1 else f'quality "{self.quality}" sends everything'
        if self.vetoed:
            why = f'no codec of quality "{self.quality}" is left'
        self._settle(Decision(DENSE, self.step, why))

    def _stages(self) -> Script:
        """What is measured before a decision, one stage behind the other."""
        (step_s,) = yield Trial(DENSE, 1, 1)
        if step_s < LONG_S:
            yield Trial(DENSE, WARM_UP - 2, 0)
        self.actions.measure(candidates(self.quality), step_s)
        dense_s = yield Trial(DENSE, AGAIN_STEPS, 1 + self._timed(step_s))
        self._race.add(DENSE, dense_s)
        passes = self._agreed_passes()
        yield from self._trials(passes)
        yield from self._last_rounds()

    def _trials(self, passes: Passes | None) -> Script:
        """Selection after choice, the most promising first, as long as one could be the best."""
        self._forecast(passes)
        if not self._worth_a_trial():
            return
        while self._may_go_on(SWITCH_STEPS + TIMED_STEPS, MAX_TRIALS_S):
            best_s = min(self._race.measured_s.values())
            text = self._race.next_trial(self._forecasts, SURE_TRIALS)
            if text is None or best_s < (1 + NOTHING_LEFT) * self._compute_s:
                return
            expected_s = self._forecasts.step_s[text]
            self.actions.drain()
            warm = SWITCH_STEPS if expected_s < LONG_S else AGAIN_STEPS
            first = yield Trial(text, warm, 1)
            self._race.add(text, first)
            more = self._timed(first[0]) - 1
            if more and first[0] < GIVE_UP * best_s:
                self._race.add(text, (yield Trial(text, 0, more)))
            self._forecast(passes)

    def _last_rounds(self) -> Script:
        """The best and whoever may be as quick take turns, so that a slow minute hits all of them."""
        texts = [self._race.ranked[0], DENSE] if len(self._race.steps_s) > 1 else []
        while True:
            middle = self._race.measured_s
            each = {text: self._timed(middle[text]) for text in dict.fromkeys(texts)}
            steps = sum(AGAIN_STEPS + timed for timed in each.values())
            expected_s = sum((AGAIN_STEPS + timed) * middle[text] for text, timed in each.items())
            if not each or not self._may_go_on(steps, MAX_ROUNDS_S - expected_s):
                return
            for text, timed in each.items():
                self.actions.drain()
                self._race.add(text, (yield Trial(text, AGAIN_STEPS, timed)))
            texts = self._race.open_between

    def _may_go_on(self, steps: int, seconds: float) -> bool:
        return self.step + steps - self._began <= MAX_STEPS and self._trial_s < seconds

    def _timed(self, step_s: float) -> int:
        return TIMED_STEPS if step_s < LONG_S else 2 if step_s < VERY_LONG_S else 1

    def _worth_a_trial(self) -> bool:
        """Whether communication is a real part of plain DDP's step, or a codec is forecast to pay."""
        dense_s = self._race.measured_s[DENSE]
        others = [s for text, s in self._forecasts.step_s.items() if text != DENSE]
        pays = bool(others) and min(others) < (1 - WORTH) * dense_s
        return pays or 1 - self._compute_s / dense_s > WORTH

    def _agreed_passes(self) -> Passes | None:
        """What a step computes, on the slowest rank."""
        passes = Passes.of(self.pace.steps)
        if passes is None:
            return None
        rest, *ready = self.actions.agree([passes.rest_s, *passes.ready_s])
        self._compute_s = rest + ready[-1]
        return Passes(rest, tuple(ready))

    def _forecast(self, passes: Passes | None) -> None:
        """Without passes (buckets that differ from step to step) all choices look alike."""
        start = time.perf_counter()
        measured = self._race.measured_s
        if passes is None:
            alike = dict.fromkeys(self.choices, measured[DENSE])
            self._forecasts = Forecasts(alike, alike, 0.0)
        else:
            self._forecasts = self.actions.forecasts((DENSE, *self.choices), passes, measured)
        self._forecasting_s += time.perf_counter() - start

    def _over(self) -> None:
        """A stage is over: its times are noted and the next one begins, or all is known."""
        times = self.pace.durations(self._stage.warm)
        if self.decided:
            self._look(median(times))
        elif self._script is not None:
            agreed = self.actions.agree(times) if times else []
            begun = self._stage.warm + self._stage.timed > 0
            if self._stage.codec != DENSE or len(self._race.steps_s) > 1:
                self._trial_s += sum(agreed) * (1 + self._stage.warm / max(1, self._stage.timed))
            try:
                stage = self._script.send(agreed) if begun else next(self._script)
            except StopIteration:
                self._decide()
            else:
                self._begin(stage)
        self.pace.forget()

    def _begin(self, stage: Trial) -> None:
        self._stage = stage
        if stage.codec != self.codec:
            self.actions.steer(stage.codec)
            self.codec = stage.codec

    def _decide(self) -> None:
        start = time.perf_counter()
        made = decide(self._race, self.choices, self.step, self._forecasts.step_s)
        self._settle(replace(made, compute_s=self._compute_s, probed_s=self._forecasts.probed_s))
        deciding_s = self._forecasting_s + time.perf_counter() - start
        if made.compresses:
            self._watch.look_drained(self.actions)
        self.decisions[-1] = replace(self.decisions[-1], deciding_s=deciding_s)

    def _settle(self, decision: Decision) -> None:
        again = None if self.decision is None else self.decision.codec == decision.codec
        self.decisions.append(decision)
        self.decided = True
        self._watch.begin(decision.measured_s.get(decision.codec, 0.0), same=again)
        self._begin(Trial(decision.codec, SWITCH_STEPS, self._watch.window))
        LOG.info("step %d: %s", decision.step, str(decision).partition("\n")[0])

    def _look(self, window_s: float) -> None:
        """A window of steps is over: is it as it was when this was decided? All ranks see the same."""
        if not self.choices:
            return
        (agreed,) = self.actions.agree([window_s])
        why = self._watch.strays(agreed, self.actions)
        if why:
            self._decide_anew(why)
            return
        self._stage = Trial(self.codec, 0, self._watch.window)
        if self._watch.link is not None and self.decision is not None:
            self.decisions[-1] = replace(self.decision, **self._watch.link.to_dict())

    def _decide_anew(self, why: str) -> None:
        """From the step that begins now on."""
        LOG.info("step %d: auto decides anew, %s", self.step, why)
        self._start()
        self.pace.forget()
        self._over()

    def _look_after_resume(self) -> None:
        """The first step after a decision was loaded: it holds if the link is the one it was made on."""
        self._resumed = False
        decision = self.decision
        assert decision is not None
        link = LinkLook(decision.link_bytes, decision.link_s, decision.short_s) if decision.short_s else None
        self._watch.begin(decision.measured_s.get(self.codec, 0.0), link)
        if self._watch.other_link(self.actions.link_s):
            self._decide_anew("the link is another than at the decision")
            return
        self.decided = True
        self._stage = Trial(self.codec, WARM_UP, self._watch.window)
