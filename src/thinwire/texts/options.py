"""Options of a link: dataclass fields that can also be read from a codec text."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

from thinwire.errors import CodecError


def option(default: Any, read: Callable[[str], Any], rule: str, show: Callable[[Any], str] = str) -> Any:
    """A field whose text form is parsed by `read` and whose rule is quoted when the text does not fit."""
    metadata = {"read": read, "rule": rule, "show": show}
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


def read_options(cls: type, texts: dict[str, str], where: str) -> dict[str, Any]:
    """Parses option texts by the fields of a link class; `where` names the link in errors."""
    fields = {field.name: field for field in dataclasses.fields(cls)}
    values = {}
    for name, text in texts.items():
        if name not in fields:
            known = ", ".join(fields) or "none at all"
            raise CodecError(f'{where} has no option "{name}": it takes {known}')
        metadata = fields[name].metadata
        try:
            values[name] = metadata["read"](text)
        except ValueError:
            raise CodecError(f'{where}: {name}="{text}" does not fit: {metadata["rule"]}') from None
    return values


def show_options(link: Any) -> str:
    """The options that differ from their defaults, as they are written in a codec text."""
    shown = []
    for field in dataclasses.fields(link):
        value = getattr(link, field.name)
        if value != field.default:
            shown.append(f"{field.name}={field.metadata['show'](value)}")
    return ",".join(shown)


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
