"""Options of a link: dataclass fields that can also be read from a codec text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from thinwire.errors import CodecError

START_RULE = 'a number of steps, or a part of the run as in "5%"'


def option(
    default: Any,
    read: Callable[[str], Any],
    rule: str,
    show: Callable[[Any], str] = str,
    of_run: bool = False,
) -> Any:
    """A field whose text form is parsed by `read` and whose rule is quoted when the text does not fit.

    `of_run`: it is a number of steps, which may be written as a part of the run ("5%").
    """
    metadata = {"read": read, "rule": rule, "show": show, "of_run": of_run}
    return dataclasses.field(default=default, metadata=metadata)


def option_texts(rest: str, bare: str | None, name: str, where: str) -> dict[str, str]:
    """Cuts "0.01,k=5" into option texts; a value without a name is for the option `bare`.

    >>> option_texts("0.01, chunk=64", "ratio", "topk", "")
    {'ratio': '0.01', 'chunk': '64'}
    """
    texts: dict[str, str] = {}
    for item in filter(None, (item.strip() for item in rest.split(","))):
        option, equals, value = (piece.strip() for piece in item.partition("="))
        if not equals:
            if bare is None:
                raise CodecError(f'{where}: {name} takes no bare value "{item}": write option=value')
            option, value = bare, item
        if option in texts:
            raise CodecError(f"{where}: option {option} of {name} is given twice")
        texts[option] = value
    return texts


def read_options(
    cls: type, texts: dict[str, str], where: str, total_steps: int | None = None
) -> dict[str, Any]:
    """Parses option texts by the fields of a link class; `where` names the link in errors.

    `total_steps` is the length of the run, for options that are written as a part of it.
    """
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values = {}
    for name, text in texts.items():
        if name not in fields:
            known = ", ".join(fields) or "none at all"
            raise CodecError(f'{where} has no option "{name}": it takes {known}')
        metadata = fields[name].metadata
        if metadata["of_run"] and text.endswith("%"):
            text = _steps_of_run(text, total_steps, f"{where}: {name}={text}")
        try:
            values[name] = metadata["read"](text)
        except ValueError:
            raise CodecError(f'{where}: {name}="{text}" does not fit: {metadata["rule"]}') from None
    return values


def _steps_of_run(text: str, total_steps: int | None, where: str) -> str:
    """A part of the run as a number of steps; what is no part is left to be refused as no number."""
    if total_steps is None:
        raise CodecError(
            f"{where} is a part of the run, whose length nobody told: pass total_steps= to compress, or "
            "write a number of steps"
        )
    try:
        percent = float(text.removesuffix("%"))
    except ValueError:
        return text
    return str(round(percent / 100 * total_steps)) if 0 <= percent <= 100 else text


def show_options(link: Any) -> str:
    """The options that differ from their defaults, as they are written in a codec text."""
    shown = []
    for field in dataclasses.fields(link):
        value = getattr(link, field.name)
        if value != field.default:
            shown.append(f"{field.name}={field.metadata['show'](value)}")
    return ",".join(shown)


def check_start(name: str, start: int) -> None:
    """Refuses a dense start that ends before it begins."""
    if start < 0:
        raise CodecError(f"{name}: start={start} must be a number of steps, 0 for none")


def one_of(*names: str) -> Callable[[str], str]:
    """Reads one of a few words."""

    def read(text: str) -> str:
        if text not in names:
            raise ValueError(text)
        return text

    return read


def number_or_off(text: str) -> float:
    """Reads a number; "off" is infinity."""
    return math.inf if text == "off" else float(text)


def show_number_or_off(value: float) -> str:
    """All digits: ranks compare these texts to find out whether their codecs are the same."""
    return "off" if math.isinf(value) else repr(value)


def read_chunk(text: str) -> int:
    """Reads a number of elements; "tensor" is 0: as many as there are."""
    if text != "tensor" and int(text) == 0:
        raise ValueError(text)
    return 0 if text == "tensor" else int(text)


def show_chunk(chunk: int) -> str:
    return "tensor" if chunk == 0 else str(chunk)


def yes_or_no(text: str) -> bool:
    """Reads "on" or "off"."""
    return one_of("on", "off")(text) == "on"


def show_yes_or_no(value: bool) -> str:
    return "on" if value else "off"
