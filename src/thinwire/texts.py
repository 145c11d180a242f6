"""What users write: names, options of codecs, options behind "@", rates of links."""

from __future__ import annotations

import dataclasses
import difflib
import math
import re
from collections.abc import Callable, Iterable
from typing import Any

from thinwire.errors import CodecError, LabError, PlanError


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "worker"), counted(1200, "step")
    ('1 worker', '1,200 steps')
    """
    return f"{number:,} {noun}" + ("" if number == 1 else "s")


FEEDBACKS = ("none", "residual", "momentum", "ef21")
ROUTES = ("allreduce", "allgather", "sharded")
SCHEDULES = ("constant", "steps", "epochs", "diminish", "guard")


def check_name(what: str, text: str, known: Iterable[str]) -> None:
    """Refuses error feedback, a route or a schedule that does not exist; options are not checked."""
    name = first_word(text)
    if name not in known:
        raise PlanError(f'there is no {what} "{name}": {known_names(name, known)}')


def known_names(name: str, known: Iterable[str]) -> str:
    """The names there are, and the one that was probably meant."""
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return f"{hint}known are {', '.join(known)}"


def first_word(text: str) -> str:
    return text.partition(":")[0].strip()


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


OPTIONS = (
    "feedback",
    "route",
    "schedule",
    "bucket",
    "quality",
    "hierarchy",
    "sensitive",
    "every",
    "outer",
    "weights",
)
FORMER = {"memory": "feedback", "control": "schedule"}  # names before 0.2, which records still have
_EXAMPLE = '"topk:0.01 @ schedule=guard feedback=none"'


def with_present_names(text: str) -> str:
    """A codec text with the present names of the options behind "@".

    >>> with_present_names("topk:0.01 @ memory=none control=guard")
    'topk:0.01 @ feedback=none schedule=guard'
    """
    return re.sub(rf"(?<=[@ ])({'|'.join(FORMER)})=", lambda found: f"{FORMER[found[1]]}=", text)


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """The codec, and what is asked for behind "@", in words of the form option=value.

    >>> split_options("topk:0.01 @ schedule=guard:patience=2 feedback=none")
    ('topk:0.01', {'schedule': 'guard:patience=2', 'feedback': 'none'})
    """
    codec, at, rest = text.partition("@")
    given: dict[str, str] = {}
    for word in rest.split():
        name, equals, value = word.partition("=")
        name = FORMER.get(name, name)
        if name not in OPTIONS or not equals or not value:
            raise CodecError(
                f'"{text}": "{word}" behind @ does not fit: write option=value with one of '
                f"{', '.join(OPTIONS)}, as in {_EXAMPLE}"
            )
        if name in given:
            raise CodecError(f'"{text}": {name} is given twice behind @')
        given[name] = value
    if at and not given:
        raise CodecError(f'"{text}": nothing stands behind @: write for example {_EXAMPLE}')
    return codec.strip(), given


def read_hierarchy(text: str) -> str | int:
    """As `compress` takes it: a word, or how many workers a node has."""
    return int(text) if text.isdigit() else text


UNITS = {"bit": 1.0, "kbit": 1e3, "mbit": 1e6, "gbit": 1e9}


NO_LIMIT = "none"


def rate_or_none(text: str | None) -> str | None:
    """The rate that a user asked for, checked; None for "none": as fast as the machine is.

    >>> rate_or_none("none"), rate_or_none("1gbit")
    (None, '1gbit')
    """
    if text is None or text.strip().lower() == NO_LIMIT:
        return None
    parse_rate(text)
    return text


def parse_rate(text: str) -> float:
    """Bits per second of a text such as "1gbit", "1.5gbit", "100mbit" or "500kbit".

    Units are decimal, as on a network card: 1 kbit = 1000 bit.
    """
    match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmg]?bit)(?:/s)?\s*", text, re.IGNORECASE)
    rate = float(match[1]) * UNITS[match[2].lower()] if match else math.nan
    if not 0 < rate < math.inf:
        raise LabError(
            f'rate "{text}" is not understood: write a number above 0 with kbit, mbit or gbit, like "100mbit"'
        )
    return rate


def show_rate(text: str) -> str:
    """A rate as it is read in a sentence.

    >>> show_rate("100mbit"), show_rate("1.5gbit"), show_rate("999kbit")
    ('100 Mbit/s', '1.5 Gbit/s', '999 kbit/s')
    """
    rate = parse_rate(text)
    unit = max((unit for unit in UNITS if UNITS[unit] <= rate), key=lambda unit: UNITS[unit], default="bit")
    prefix = unit.removesuffix("bit")
    return f"{rate / UNITS[unit]:g} {prefix if prefix == 'k' else prefix.upper()}bit/s"
