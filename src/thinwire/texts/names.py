"""Names: what codecs, memories, routes and controls are called, known without importing any of them.

The command line refuses a misspelt name by these before it waits for torch. Each list is that of a table:
`codecs/catalog.py`, `memories/table.py`, `routes/table.py`, `controls/table.py` (tests/test_names.py).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from thinwire.errors import CodecError, PlanError

CODECS = (
    *("dense", "fp16", "bf16", "terngrad", "clip", "ternary", "qsgd", "natural", "rangefloat", "sign"),
    *("topk", "dgc", "gradiveq", "powersgd", "fourier", "dct", "fft"),
)
AUTO = "auto"  # no codec: the one that is quickest here
MEMORIES = ("none", "residual", "momentum", "ef21")
ROUTES = ("allreduce", "allgather", "sharded")
CONTROLS = ("constant", "steps", "epochs", "diminish", "guard")


def check_codec_names(text: str) -> None:
    """Refuses a codec text that names a link that does not exist; its options are not looked at.

    A name with a dot is a class of the user's own, which only `parse` can look up.

    >>> check_codec_names("gradiveq:8 >> qsgd:4")
    """
    if "@" in text:
        raise CodecError(
            f'codec "{text}": options behind @ are for the whole model, and here is one of several codecs: '
            "leave them out and pass memory=, route= or control= to compress"
        )
    for part in text.split(">>"):
        name = first_word(part)
        if name not in CODECS and "." not in name:
            known = CODECS if ">>" in text else (*CODECS, AUTO)
            raise CodecError(f'codec "{text}": there is no codec "{name}": {_known(name, known)}')


def check_name(what: str, text: str, known: Iterable[str]) -> None:
    """Refuses a memory, route or control that does not exist; its options are not looked at."""
    name = first_word(text)
    if name not in known:
        raise PlanError(f'there is no {what} "{name}": {_known(name, known)}')


def first_word(text: str) -> str:
    return text.partition(":")[0].strip()


def _known(name: str, known: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(known), 1)
    hint = f'did you mean "{close[0]}"? ' if close else ""
    return f"{hint}known are {', '.join(known)}"
