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
from thinwire.schedules.base import Change, Observation, Schedule, ScheduleState, agree, argument
from thinwire.schedules.fixed import Diminish, Epochs, Steps
from thinwire.schedules.guard import Guard
from thinwire.texts import check_name, option_texts, read_options, show_options

CONSTANT = "constant"  # the same as no schedule


@dataclass(frozen=True)
class ScheduleKind:
    """A schedule by name, and the option a value without a name is for."""

    made: type[Schedule[Any]]
    bare: str | None = None


SCHEDULES: Mapping[str, ScheduleKind] = MappingProxyType(
    {
        "steps": ScheduleKind(Steps, "points"),
        "epochs": ScheduleKind(Epochs, "points"),
        "diminish": ScheduleKind(Diminish, "L"),
        "guard": ScheduleKind(Guard),
    }
)


def make_schedule(text: str | None) -> Schedule[Any] | None:
    """The schedule a text asks for, with options as in a codec text; None for none or "constant".

    >>> make_schedule("epochs: 0=1/5=0.5")
    Epochs(points=((0.0, 1.0), (5.0, 0.5)), of='level')
    """
    if text is None or text.strip() == CONSTANT:
        return None
    name, _, rest = (piece.strip() for piece in text.partition(":"))
    check_name("schedule", text, (CONSTANT, *SCHEDULES))
    kind, place = SCHEDULES[name], f'schedule "{text}"'
    items = [_named(item.strip(), kind.bare) for item in rest.split(",")]
    texts = option_texts(",".join(items), kind.bare, name, place)
    return kind.made(**read_options(kind.made, texts, f"{place}: {name}"))


def schedule_text(schedule: Schedule[Any] | None) -> str:
    """The one way to write a schedule: ranks compare these texts, and states keep them."""
    if schedule is None:
        return CONSTANT
    name = next(name for name, kind in SCHEDULES.items() if kind.made is type(schedule))
    shown = show_options(schedule)
    return name + (f":{shown}" if shown else "")


def check_schedule(schedule: Schedule[Any] | None, codecs: Iterable[Codec]) -> float | None:
    """The theta that all adjustable codecs share, if they do; refuses codecs without a compression level."""
    codecs = list(codecs)
    strong = [codec for codec in codecs if codec.adjustable]
    if schedule is not None and not strong:
        name = schedule_text(schedule).partition(":")[0]
        raise CodecError(
            f'{codecs[-1]} has no compression level to lower, so schedule "{name}" cannot help: use a '
            'codec that has one, such as "topk:0.01", "dgc:0.001", "qsgd:4" or "fft:0.85", or leave the '
            "schedule out"
        )
    thetas = {codec.theta for codec in strong}
    theta = thetas.pop() if len(thetas) == 1 else None
    if schedule is not None:
        schedule.check(theta)
    return theta


def _named(item: str, bare: str | None) -> str:
    """ "0=1/5=0.5" is a value and no option called 0."""
    return f"{bare}={item}" if bare and item[:1].isdigit() and "=" in item else item


LOG = logging.getLogger("thinwire")
UNHEARD_STEPS = 100  # steps after which somebody should have told something


class Scheduler:
    """Decides the compression level of every step, on all ranks from the same values."""

    def __init__(self, schedule: Schedule[Any] | None, theta: float | None) -> None:
        self.schedule, self.full_theta = schedule, theta
        self.state: ScheduleState = ScheduleState() if schedule is None else schedule.begin(theta)
        self.pending = Observation()
        self.changes: list[Change] = []
        self._heard = False

    @property
    def compression_level(self) -> float:
        return self.state.compression_level

    @property
    def theta(self) -> float | None:
        """The part of the values that is dropped now."""
        return None if self.full_theta is None else self.compression_level * self.full_theta

    @property
    def listens(self) -> bool:
        """True if the ranks must tell each other what they observed."""
        return self.schedule is not None and self.schedule.needs is not None

    def observe(self, observation: Observation) -> None:
        """Adds what this rank observed to what it will tell the others."""
        self.pending = self.pending.plus(observation)

    def decide(self, observations: list[Observation], name: Callable[[int], int], step: int) -> bool:
        """Sets the compression level of a step from the observations of all ranks; True if it changed."""
        if self.schedule is None:
            return False
        seen = agree(observations, name, self.schedule.needs)
        self._remind(self.schedule, bool(observations[0].calls), step)
        self.pending = Observation()
        before = self.compression_level
        self.state, why = self.schedule.decide(self.state, seen, step, self.full_theta)
        if self.compression_level == before:
            return False
        self.changes.append(Change(step, self.compression_level, why))
        LOG.info("step %d: compression level %s, was %s: %s", step, self.compression_level, before, why)
        return True

    def follow(self, level: float, step: int) -> None:
        """Takes the compression level that others decided on for a step."""
        if level != self.compression_level:
            self.state = dataclasses.replace(self.state, compression_level=level)
            self.changes.append(Change(step, level, "as the leader of its node decided"))

    def state_dict(self, pending: list[Observation]) -> dict[str, Any] | None:
        """Plain numbers and texts; `pending` is what one rank, or each of them, has yet to tell."""
        if self.schedule is None:
            return None
        return {
            "text": schedule_text(self.schedule),
            "state": dataclasses.asdict(self.state),
            "changes": [dataclasses.asdict(change) for change in self.changes],
            "pending": [dataclasses.asdict(observation) for observation in pending],
        }

    def load(self, saved: Mapping[str, Any] | None, pending: Observation) -> None:
        """Goes on where `state_dict` was taken; starts anew if that run had no schedule."""
        if self.schedule is None:
            return
        begin = self.schedule.begin(self.full_theta)
        self.state = begin if saved is None else dataclasses.replace(begin, **_present(saved["state"]))
        self.changes = [] if saved is None else [Change(**_present(change)) for change in saved["changes"]]
        self.pending = pending

    def _remind(self, schedule: Schedule[Any], heard: bool, step: int) -> None:
        self._heard = self._heard or heard
        if schedule.needs is not None and not self._heard and step == UNHEARD_STEPS:
            name, call = schedule_text(schedule), argument(schedule.needs)
            LOG.warning(
                'schedule "%s" was told nothing in %d steps: call compressor.observe(%s) in every step',
                name,
                step,
                call,
            )


def _present(saved: Mapping[str, Any]) -> dict[str, Any]:
    """What was saved, under present names: 0.2 said "strength", and "level" for the guard's baseline."""
    if "strength" not in saved:
        return dict(saved)
    names = {"strength": "compression_level", "level": "baseline"}
    return {names.get(name, name): value for name, value in saved.items()}
