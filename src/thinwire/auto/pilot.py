"""The pilot of an `auto` run: measures, tries, decides, and goes on watching. All ranks move alike."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any, Protocol

from thinwire.auto.choice import Choice, choices
from thinwire.auto.decision import Decision, decide
from thinwire.auto.pace import Pace, Passes
from thinwire.auto.qualities import DENSE, candidates
from thinwire.auto.shortlist import shortlist

LOG = logging.getLogger("thinwire")
WARM_UP = 4  # steps before anything is measured: DDP rebuilds its buckets, buffers are allocated
DENSE_STEPS = 6
ROUNDS = 2  # of trials: all take turns, so that a slow minute hits all of them
SWITCH_STEPS = 2  # after a switch: lanes and buffers are made
TRIAL_STEPS = 4
WINDOW = 50  # steps of which the median is compared with what was decided on
STRAYS = 1.35  # times slower or quicker than that, in two windows one behind the other: decided anew
OTHER_LINK = 3.0  # times slower or quicker messages than at the decision: another link
LINK_WINDOWS = 10  # windows between two looks at the link


class Helm(Protocol):
    """What a pilot can do, the same on all ranks; choices are texts: a codec, or one "by nodes"."""

    def adopt(self, text: str) -> None:
        """Gradients travel by this choice, whose state is loaded next."""

    def steer(self, text: str) -> None:
        """From this step on gradients travel by this choice; collective."""

    def agree(self, numbers: Sequence[float]) -> list[float]:
        """The largest of every number over all ranks; collective."""

    def link_s(self) -> float:
        """Seconds of a message of fixed size, now; collective."""

    def measure(self, codecs: Sequence[str], passes: Passes) -> None:
        """Probes links and codecs; collective."""

    def forecasts(self, texts: Sequence[str], passes: Passes) -> dict[str, float]:
        """Seconds of a step by choice, as the performance model says; without those that cannot serve."""


@dataclass(frozen=True)
class Stage:
    """Steps under one codec; of the first `warm` the time does not count."""

    codec: str
    warm: int
    timed: int


class Pilot:
    """Runs through stages. `begin_step` is called when the first bucket of a step is ready.

    1. plain DDP, measured
    2. the model forecasts every codec of the quality, and where workers share `nodes` every codec by nodes;
       the best few are tried in turns with plain DDP
    3. the quickest by measurement stays, if it saves enough of a step
    4. watched: if steps or messages take another time than at the decision, all over again
    """

    def __init__(self, quality: str, helm: Helm, workers: int = 2, nodes: bool = False) -> None:
        allowed = choices(quality, nodes)
        self.quality, self.helm, self.workers = quality, helm, workers
        self.choices = allowed if workers > 1 else ()
        self.pace = Pace()
        self.codec = DENSE
        self.step = 0
        self.decisions: list[Decision] = []
        self.decided = False
        self._strayed = False  # the window before this one was not as decided
        self._resumed = False  # a decision was loaded, and the link has yet to be looked at
        self._forecast_s: dict[str, float] = {}
        self._forecasting_s = 0.0  # what making them took
        self._rounds: dict[str, list[float]] = {}  # seconds of a step, by codec and round of trials
        self._windows = 0  # watched since the decision
        self._stages: Iterator[Stage] = iter(())
        self._stage = Stage(DENSE, 0, 0)
        self._start()

    def begin_step(self, now: float) -> None:
        """Moves on to the next stage where the one before is over; may switch the codec of this step."""
        self.pace.begin(now)
        if self._resumed:
            self._look_at_link()
        elif len(self.pace.steps) > self._stage.warm + self._stage.timed:
            self._over()
        self.step += 1

    @property
    def decision(self) -> Decision | None:
        """The one in force, or the last one while something else is tried."""
        return self.decisions[-1] if self.decisions else None

    @property
    def explanation(self) -> str:
        """What was decided and why, or what is being tried."""
        if self.decided or not self._stage.timed:
            return str(self.decision or "")
        return f"auto: not decided yet, step {self.step} is a trial of {self.codec}"

    def state_dict(self) -> dict[str, Any]:
        """The codec in force, and the decision if there is one: a resumed run goes on with it."""
        decided = self.decision.to_dict() if self.decided and self.decision is not None else None
        return {"quality": self.quality, "codec": self.codec, "step": self.step, "decision": decided}

    def load(self, saved: Mapping[str, Any]) -> None:
        """Goes on with a decision unless the link is another; without one it measures anew.

        A decision for nodes that are no more is none: what was held back is sent by all workers.
        """
        was = Choice.of(saved["codec"])
        without_nodes = was.by_nodes and str(was) not in self.choices
        self.codec, self.step = was.codec if without_nodes else str(was), int(saved["step"])
        self.helm.adopt(self.codec)
        self.pace = Pace()
        if saved["decision"] is None or without_nodes:
            self._start()
            return
        self.decisions.append(Decision(**saved["decision"]))
        self._resumed = True

    def _start(self) -> None:
        """Everything is measured from here on."""
        self.decided = self._strayed = False
        self._rounds, self._windows = {}, 0
        self._stages = self._first() if self.choices else iter(())
        self._stage = Stage(self.codec, 0, 0)
        if not self.choices:
            alone = "a worker alone has nothing to send"
            why = alone if self.workers == 1 else f'quality "{self.quality}" sends everything'
            self._settle(Decision(DENSE, self.step, why))

    def _first(self) -> Iterator[Stage]:
        """What is measured before a decision, one stage behind the other."""
        yield Stage(DENSE, WARM_UP, DENSE_STEPS)
        tried = self._shortlist()
        if tried:
            self._rounds.clear()  # plain DDP is measured again, between the others
        for _ in range(ROUNDS if tried else 0):
            for codec in (*tried, DENSE):
                yield Stage(codec, SWITCH_STEPS, TRIAL_STEPS)

    def _over(self) -> None:
        """A stage is over: its times are noted and the next one begins, or all is known."""
        times = self.pace.durations(self._stage.warm)
        if self.decided:
            self._watch(times)
        else:
            if times:
                self._rounds.setdefault(self._stage.codec, []).append(median(times))
            stage = next(self._stages, None)
            if stage is None:
                self._decide()
            else:
                self._begin(stage)
        self.pace.forget()

    def _begin(self, stage: Stage) -> None:
        self._stage = stage
        if stage.codec != self.codec:
            self.helm.steer(stage.codec)
            self.codec = stage.codec

    def _shortlist(self) -> tuple[str, ...]:
        """What the model finds worth a trial, the best first; the same on all ranks."""
        passes = Passes.of(self.pace.steps)
        if passes is None:
            return ()
        rest, *ready = self.helm.agree([passes.rest_s, *passes.ready_s])
        agreed = Passes(rest, tuple(ready))
        self.helm.measure(candidates(self.quality), agreed)
        start = time.perf_counter()
        self._forecast_s = self.helm.forecasts((DENSE, *self.choices), agreed)
        self._forecasting_s = time.perf_counter() - start
        return shortlist(self._forecast_s)

    def _decide(self) -> None:
        agreed = iter(self.helm.agree([s for rounds in self._rounds.values() for s in rounds]))
        rounds_s = {codec: [next(agreed) for _ in rounds] for codec, rounds in self._rounds.items()}
        link_s = self.helm.link_s()
        start = time.perf_counter()
        self._settle(decide(rounds_s, self._forecast_s, self.step, link_s))
        deciding_s = self._forecasting_s + time.perf_counter() - start
        self.decisions[-1] = replace(self.decisions[-1], deciding_s=deciding_s)

    def _settle(self, decision: Decision) -> None:
        self.decisions.append(decision)
        self.decided = True
        self._begin(Stage(decision.codec, SWITCH_STEPS, WINDOW))
        LOG.info("step %d: %s", decision.step, str(decision).partition("\n")[0])

    def _watch(self, times: list[float]) -> None:
        """Compares a window with what was decided on; all ranks see the same numbers."""
        if not self.choices or self.decision is None:
            return
        (window,) = self.helm.agree([median(times)])
        expected = self.decision.measured_s[self.codec]
        strays = not 1 / STRAYS < window / expected < STRAYS
        self._windows += 1
        another = self._windows % LINK_WINDOWS == 0 and self._other_link()
        if another or (strays and self._strayed):
            LOG.info("step %d: auto decides anew, a step takes %.3g s, not %.3g", self.step, window, expected)
            self._begin(Stage(DENSE, 0, 0))
            self._start()
        else:
            self._strayed = strays

    def _look_at_link(self) -> None:
        """The first step after a decision was loaded: it holds if the link is the one it was made on."""
        self._resumed = False
        if self._other_link():
            LOG.info("step %d: the link is another than at the decision, auto decides anew", self.step)
            self._begin(Stage(DENSE, 0, 0))
            self._start()
        else:
            self.decided = True
            self._stage = Stage(self.codec, WARM_UP, WINDOW)

    def _other_link(self) -> bool:
        if self.decision is None or not self.decision.link_s:
            return False
        ratio = self.helm.link_s() / self.decision.link_s
        return not 1 / OTHER_LINK < ratio < OTHER_LINK
