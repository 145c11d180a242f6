"""The one list of codec names, and the parser of codec texts such as "terngrad:clip=2.5"."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from thinwire.codec import Codec
from thinwire.coders.base import Coder
from thinwire.coders.floats import Cast, Dense
from thinwire.coders.qsgd import Qsgd
from thinwire.coders.rangefloat import RangeFloat
from thinwire.coders.sign import Sign
from thinwire.coders.ternary import Ternary
from thinwire.errors import CodecError
from thinwire.names import check_codec_names
from thinwire.options import option_texts, read_options
from thinwire.stages.base import Chain, LinearStage, SelectingStage, Stage
from thinwire.stages.clip import Clip
from thinwire.stages.dct import Dct
from thinwire.stages.dgc import Dgc
from thinwire.stages.fft import Fft
from thinwire.stages.fourier import Fourier
from thinwire.stages.lowrank import LowRank
from thinwire.stages.pca import Pca
from thinwire.stages.topk import TopK


@dataclass(frozen=True)
class Entry:
    """A name, the link it makes, the options it fixes, and the option a bare value is for (`topk:0.01`).

    A name may also make several links (a Chain). A stage with a `default_coder` may end a codec text.
    """

    link: type[Stage] | type[Coder] | type[Chain]
    about: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    bare: str | None = None
    default_coder: Coder | None = None


CATALOG: Mapping[str, Entry] = MappingProxyType(  # the names are in names.py too
    {
        "dense": Entry(Dense, "the gradient as it is"),
        "fp16": Entry(Cast, "16-bit floats, 5 bits of exponent", {"to": "fp16"}),
        "bf16": Entry(Cast, "16-bit floats, 8 bits of exponent", {"to": "bf16"}),
        "terngrad": Entry(Ternary, "{-1, 0, +1} times a scale per layer", bare="clip"),
        "clip": Entry(Clip, "stage: cut at c standard deviations", bare="c"),
        "ternary": Entry(Ternary, "terngrad without clipping, for chains", {"clip": float("inf")}),
        "qsgd": Entry(Qsgd, "a few bits times a scale per block", bare="bits"),
        "rangefloat": Entry(RangeFloat, "floats of a few bits, fitted to each layer", bare="bits"),
        "sign": Entry(Sign, "one bit and two values per layer"),
        "topk": Entry(TopK, "the largest elements and their places", bare="ratio", default_coder=Dense()),
        "dgc": Entry(Dgc, "topk with momentum correction and a warm-up", bare="ratio", default_coder=Dense()),
        "gradiveq": Entry(Pca, "slices in a basis all ranks share", bare="ratio", default_coder=Dense()),
        "powersgd": Entry(
            LowRank, "matrices as products of two thin ones", bare="rank", default_coder=Dense()
        ),
        "fourier": Entry(Fourier, "stage: chunks as frequencies", bare="chunk"),
        "dct": Entry(Dct, "stage: chunks as cosines", bare="chunk"),
        "fft": Entry(
            Fft, "the strongest frequencies and their places", bare="theta", default_coder=RangeFloat(bits=10)
        ),
    }
)


def parse(text: str) -> Codec:
    """Reads a codec text: links joined by ">>", each `name`, `name:value` or `name:option=value,...`.

    >>> parse("terngrad:clip=off,block=2048").merge.value
    'int'
    """
    parts = [part.strip() for part in text.split(">>")]
    links = [(part, link) for part in parts for link in _links(part, text)]
    if not isinstance(links[-1][1], Coder):
        links.append((parts[-1], _default_coder(parts[-1], text)))
    *before, (_, coder) = links
    assert isinstance(coder, Coder)
    linear: list[LinearStage] = []
    selecting: SelectingStage | None = None
    for part, link in before:
        if isinstance(link, Coder):
            raise CodecError(f'codec "{text}": "{part}" packs numbers into bits, so it must be the last link')
        if selecting is not None:
            raise CodecError(
                f'codec "{text}": nothing but a coder can follow a stage that selects, not "{part}"'
            )
        if isinstance(link, SelectingStage):
            selecting = link
        elif isinstance(link, LinearStage):
            if link.learns and linear:
                raise CodecError(
                    f'codec "{text}": "{part}" learns from the mean, so it must be the first link'
                )
            linear.append(link)
    return Codec(text, tuple(linear), coder, selecting)


def _default_coder(part: str, text: str) -> Coder:
    """What packs the numbers of a chain that ends in a stage."""
    entry = CATALOG[part.partition(":")[0].strip()]
    if entry.default_coder is None:
        raise CodecError(f'codec "{text}" ends in a stage: add a coder behind it, for example ">> ternary"')
    return entry.default_coder


def _links(part: str, text: str) -> tuple[Stage | Coder, ...]:
    """What a part of a codec text stands for: one link, or several."""
    name, _, rest = part.partition(":")
    name = name.strip()
    check_codec_names(text)
    entry = CATALOG[name]
    texts = option_texts(rest, entry.bare, name, f'codec "{text}"')
    for option in texts:
        if option in entry.fixed:
            raise CodecError(f'codec "{text}": {option} is fixed by the name "{name}"')
    made = entry.link(**entry.fixed, **read_options(entry.link, texts, f'codec "{text}": {name}'))
    return made.links if isinstance(made, Chain) else (made,)
