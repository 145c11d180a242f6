"""What a user asks for: a codec and, behind "@", options of `compress`: "topk:0.01 @ control=guard"."""

from __future__ import annotations

from dataclasses import dataclass

import thinwire as tw
from thinwire.errors import LabError

OPTIONS = ("memory", "route", "control")


@dataclass(frozen=True)
class Asked:
    """A codec text, and how else `compress` is called."""

    codec: str
    memory: str | None = None
    route: str | None = None
    control: str | None = None

    def options(self) -> dict[str, str | None]:
        """The options as `compress` takes them."""
        return {"memory": self.memory, "route": self.route, "control": self.control}

    def plan(self, model: tw.Model, workers: int) -> tw.Plan:
        """What would travel for a model."""
        return tw.Plan.of(tw.Policy.of(self.codec), model, workers, **self.options())


def read_asked(text: str) -> Asked:
    """Reads a codec text with options behind "@", in words of the form option=value.

    >>> read_asked("topk:0.01 @ control=guard:patience=2 memory=none").options()
    {'memory': 'none', 'route': None, 'control': 'guard:patience=2'}
    """
    codec, at, rest = text.partition("@")
    given: dict[str, str] = {}
    for word in rest.split():
        name, equals, value = word.partition("=")
        if name not in OPTIONS or not equals or not value:
            raise LabError(
                f'"{text}": "{word}" behind @ does not fit: write option=value with one of '
                f'{", ".join(OPTIONS)}, as in "topk:0.01 @ control=guard memory=none"'
            )
        if name in given:
            raise LabError(f'"{text}": {name} is given twice behind @')
        given[name] = value
    if at and not given:
        raise LabError(f'"{text}": nothing stands behind @: write for example "topk:0.01 @ control=guard"')
    return Asked(codec.strip(), **given)
