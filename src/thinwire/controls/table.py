"""The one list of control names, and the parser of control texts such as "guard:patience=3"."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from thinwire.codecs.codec import Codec
from thinwire.controls.base import Control
from thinwire.controls.diminish import Diminish
from thinwire.controls.guard import Guard
from thinwire.controls.schedule import Epochs, Steps
from thinwire.errors import CodecError
from thinwire.texts.names import check_name
from thinwire.texts.options import option_texts, read_options, show_options

CONSTANT = "constant"  # the same as no control at all


@dataclass(frozen=True)
class Kind:
    """A control by name, and the option a value without a name is for."""

    control: type[Control[Any]]
    bare: str | None = None


CONTROLS: Mapping[str, Kind] = MappingProxyType(
    {
        "steps": Kind(Steps, "points"),
        "epochs": Kind(Epochs, "points"),
        "diminish": Kind(Diminish, "L"),
        "guard": Kind(Guard),
    }
)


def make_control(text: str | None) -> Control[Any] | None:
    """The control a text asks for, with options as in a codec text; None for none or "constant".

    >>> make_control("epochs: 0=1/5=0.5")
    Epochs(points=((0.0, 1.0), (5.0, 0.5)), of='strength')
    """
    if text is None or text.strip() == CONSTANT:
        return None
    name, _, rest = (piece.strip() for piece in text.partition(":"))
    check_name("control", text, (CONSTANT, *CONTROLS))
    kind, place = CONTROLS[name], f'control "{text}"'
    items = [_named(item.strip(), kind.bare) for item in rest.split(",")]
    texts = option_texts(",".join(items), kind.bare, name, place)
    return kind.control(**read_options(kind.control, texts, f"{place}: {name}"))


def control_text(control: Control[Any] | None) -> str:
    """The one way to write a control: ranks compare these texts, and states are kept under them."""
    if control is None:
        return CONSTANT
    name = next(name for name, kind in CONTROLS.items() if kind.control is type(control))
    shown = show_options(control)
    return name + (f":{shown}" if shown else "")


def check_control(control: Control[Any] | None, codecs: Iterable[Codec]) -> float | None:
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
