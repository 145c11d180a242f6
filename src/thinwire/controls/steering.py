"""Steering: a control at work: what was observed, the state, and the changes so far."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Mapping
from typing import Any

from thinwire.controls.base import Change, Control, ControlState
from thinwire.controls.observation import Observation, agree, argument
from thinwire.controls.table import control_text

LOG = logging.getLogger("thinwire")
UNHEARD_STEPS = 100  # steps after which somebody should have told something


class Steering:
    """The strength of every step, decided on every rank from the same numbers; None as control: always 1."""

    def __init__(self, control: Control[Any] | None, theta: float | None) -> None:
        self.control, self.full_theta = control, theta
        self.state: ControlState = ControlState() if control is None else control.begin(theta)
        self.pending = Observation()
        self.changes: list[Change] = []
        self._heard = False

    @property
    def strength(self) -> float:
        return self.state.strength

    @property
    def theta(self) -> float | None:
        """The part of the numbers that is dropped now."""
        return None if self.full_theta is None else self.strength * self.full_theta

    @property
    def listens(self) -> bool:
        """True if the ranks must tell each other what they observed."""
        return self.control is not None and self.control.needs is not None

    def observe(self, observation: Observation) -> None:
        """Adds what this rank observed to what it will tell the others."""
        self.pending = self.pending.plus(observation)

    def decide(self, observations: list[Observation], name: Callable[[int], int], step: int) -> bool:
        """Sets the strength of a step from the observations of all ranks; True if it changed."""
        if self.control is None:
            return False
        seen = agree(observations, name, self.control.needs)
        self._remind(self.control, bool(observations[0].calls), step)
        self.pending = Observation()
        before = self.strength
        self.state, why = self.control.decide(self.state, seen, step, self.full_theta)
        if self.strength == before:
            return False
        self.changes.append(Change(step, self.strength, why))
        LOG.info("step %d: %s of the codec's strength, was %s: %s", step, self.strength, before, why)
        return True

    def follow(self, strength: float, step: int) -> None:
        """Takes the strength of a step that others have decided on."""
        if strength != self.strength:
            self.state = dataclasses.replace(self.state, strength=strength)
            self.changes.append(Change(step, strength, "as the leader of its node decided"))

    def state_dict(self, pending: list[Observation]) -> dict[str, Any] | None:
        """Plain numbers and texts; `pending` is what one rank, or each of them, has yet to tell."""
        if self.control is None:
            return None
        return {
            "text": control_text(self.control),
            "state": dataclasses.asdict(self.state),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "pending": [dataclasses.asdict(observation) for observation in pending],
        }

    def load(self, saved: Mapping[str, Any] | None, pending: Observation) -> None:
        """Goes on where `state_dict` was taken; starts anew from a state that was taken without a control."""
        if self.control is None:
            return
        begin = self.control.begin(self.full_theta)
        self.state = begin if saved is None else dataclasses.replace(begin, **saved["state"])
        self.changes = [] if saved is None else [Change(**change) for change in saved["changes"]]
        self.pending = pending

    def _remind(self, control: Control[Any], heard: bool, step: int) -> None:
        self._heard = self._heard or heard
        if control.needs is not None and not self._heard and step == UNHEARD_STEPS:
            name, call = control_text(control), argument(control.needs)
            LOG.warning(
                'control "%s" was told nothing in %d steps: call compressor.observe(%s) in every step',
                name,
                step,
                call,
            )
