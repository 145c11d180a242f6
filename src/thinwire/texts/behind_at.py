"""Options behind "@" in a codec text: "topk:0.01 @ control=guard memory=none"."""

from __future__ import annotations

from thinwire.errors import CodecError

OPTIONS = ("memory", "route", "control", "bucket", "quality", "hierarchy")
_EXAMPLE = '"topk:0.01 @ control=guard memory=none"'


def split_options(text: str) -> tuple[str, dict[str, str]]:
    """The codec, and what is asked for behind "@", in words of the form option=value.

    >>> split_options("topk:0.01 @ control=guard:patience=2 memory=none")
    ('topk:0.01', {'control': 'guard:patience=2', 'memory': 'none'})
    """
    codec, at, rest = text.partition("@")
    given: dict[str, str] = {}
    for word in rest.split():
        name, equals, value = word.partition("=")
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
