"""The list of schedule names, the parser of texts such as "guard:patience=3", and the level of a step."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from thinwire.codecs.codec import Codec
from thinwire.errors import CodecError
from thinwire.schedules.base import Change, ControlState, Observation, Schedule, agree, argument
from thinwire.schedules.fixed import Diminish, Epochs, Steps
from thinwire.schedules.guard import Guard
from thinwire.texts import check_name, option_texts, read_options, show_options

CONSTANT = "constant"  # the same as no control at all


@dataclass(frozen=True)
class ScheduleKind:
    """A control by name, and the option a value without a name is for."""

    control: type[Schedule[Any]]
    bare: str | None = None


CONTROLS: Mapping[str, ScheduleKind] = MappingProxyType(
    {
        "steps": ScheduleKind(Steps, "points"),
        "epochs": ScheduleKind(Epochs, "points"),
        "diminish": ScheduleKind(Diminish, "L"),
        "guard": ScheduleKind(Guard),
    }
)


def make_control(text: str | None) -> Schedule[Any] | None:
    """The control a text asks for, with options as in a codec text; None for none or "constant".

    >>> make_control("epochs: 0=1/5=0.5")
    Epochs(points=((0.0, 1.0), (5.0, 0.5)), of='strength')
    """
    if text is None or text.strip() == CONSTANT:
        return None
    name, _, rest = (piece.strip() for piece in text.partition(":"))
    check_name("schedule", text, (CONSTANT, *CONTROLS))
    kind, place = CONTROLS[name], f'control "{text}"'
    items = [_named(item.strip(), kind.bare) for item in rest.split(",")]
    texts = option_texts(",".join(items), kind.bare, name, place)
    return kind.control(**read_options(kind.control, texts, f"{place}: {name}"))


def control_text(control: Schedule[Any] | None) -> str:
    """The one way to write a control: ranks compare these texts, and states are kept under them."""
    if control is None:
        return CONSTANT
    name = next(name for name, kind in CONTROLS.items() if kind.control is type(control))
    shown = show_options(control)
    return name + (f":{shown}" if shown else "")


def check_control(control: Schedule[Any] | None, codecs: Iterable[Codec]) -> float | None:
    """The theta of the codecs that have a strength, if they share one; refuses what cannot be controlled."""
    codecs = list(codecs)
    strong = [codec for codec in codecs if codec.has_strength]
    if control is not None and not strong:
        name = control_text(control).partition(":")[0]
        raise CodecError(
            f'{codecs[-1]} has no strength to lower, so control "{name}" cannot help: use a codec that has '
            'one, such as "topk:0.01", "dgc:0.001", "qsgd:4" or "fft:0.85", or leave the control out'
        )
    thetas = {codec.theta for codec in strong}
    theta = thetas.pop() if len(thetas) == 1 else None
    if control is not None:
        control.check(theta)
    return theta


def _named(item: str, bare: str | None) -> str:
    """ "0=1/5=0.5" is a value and no option called 0."""
    return f"{bare}={item}" if bare and item[:1].isdigit() and "=" in item else item


LOG = logging.getLogger("thinwire")
UNHEARD_STEPS = 100  # steps after which somebody should have told something


class Steering:
    """The strength of every step, decided on every rank from the same numbers; None as control: always 1."""

    def __init__(self, control: Schedule[Any] | None, theta: float | None) -> None:
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

    def _remind(self, control: Schedule[Any], heard: bool, step: int) -> None:
        self._heard = self._heard or heard
        if control.needs is not None and not self._heard and step == UNHEARD_STEPS:
            name, call = control_text(control), argument(control.needs)
            LOG.warning(
                'control "%s" was told nothing in %d steps: call compressor.observe(%s) in every step',
                name,
                step,
                call,
            )
