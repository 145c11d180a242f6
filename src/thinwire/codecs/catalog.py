"""The one list of codec names, and the parser of codec texts such as "terngrad:clip=2.5"."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from thinwire.codecs.codec import Codec, Draft
from thinwire.codecs.coders.floats import Cast, Dense
from thinwire.codecs.coders.natural import Natural
from thinwire.codecs.coders.qsgd import QSGD
from thinwire.codecs.coders.rangefloat import RangeFloat
from thinwire.codecs.coders.sign import Sign
from thinwire.codecs.coders.terngrad import TernGrad
from thinwire.codecs.link import ChainLink, ChainLinks
from thinwire.codecs.stages.clip import Clip
from thinwire.codecs.stages.dct import DCT
from thinwire.codecs.stages.dgc import DGC
from thinwire.codecs.stages.fft import FFT
from thinwire.codecs.stages.fourier import Fourier
from thinwire.codecs.stages.gradiveq import GradiVeQ
from thinwire.codecs.stages.powersgd import PowerSGD
from thinwire.codecs.stages.topk import TopK
from thinwire.errors import CodecError
from thinwire.texts.names import check_codec_names
from thinwire.texts.options import option_texts, read_options

CodecLike = str | Codec | ChainLink | ChainLinks


@dataclass(frozen=True)
class Entry:
    """A name, the link it makes, the options it fixes, and the option a bare value is for (`topk:0.01`)."""

    link: type[ChainLink]
    about: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    bare: str | None = None


CATALOG: Mapping[str, Entry] = MappingProxyType(  # the names are in texts/names.py too
    {
        "dense": Entry(Dense, "the gradient as it is"),
        "fp16": Entry(Cast, "16-bit floats, 5 bits of exponent", {"to": "fp16"}),
        "bf16": Entry(Cast, "16-bit floats, 8 bits of exponent", {"to": "bf16"}),
        "terngrad": Entry(TernGrad, "{-1, 0, +1} times a scale per layer", bare="clip"),
        "clip": Entry(Clip, "stage: cut at c standard deviations", bare="c"),
        "ternary": Entry(TernGrad, "terngrad without clipping, for chains", {"clip": float("inf")}),
        "qsgd": Entry(QSGD, "a few bits times a scale per block", bare="bits"),
        "natural": Entry(Natural, "signs and powers of two, 9 bits per element"),
        "rangefloat": Entry(RangeFloat, "floats of a few bits, fitted to each layer", bare="bits"),
        "sign": Entry(Sign, "one bit and two values per block"),
        "topk": Entry(TopK, "the largest elements and their indices", bare="ratio"),
        "dgc": Entry(DGC, "topk with momentum correction and a warm-up", bare="ratio"),
        "gradiveq": Entry(GradiVeQ, "slices in a basis all ranks share", bare="ratio"),
        "powersgd": Entry(PowerSGD, "matrices as products of two thin ones", bare="rank"),
        "fourier": Entry(Fourier, "stage: chunks as frequencies", bare="chunk"),
        "dct": Entry(DCT, "stage: chunks as cosines", bare="chunk"),
        "fft": Entry(FFT, "the strongest frequencies and their indices", bare="theta"),
    }
)


def parse(text: str, total_steps: int | None = None) -> Codec:
    """Reads a codec text: links joined by ">>", each `name`, `name:value` or `name:option=value,...`.

    A name with a dot is a class of your own: "mymodule.MyCodec:bits=4". Numbers of steps may be parts of a
    run of `total_steps`: "topk:0.01,start=5%".

    >>> parse("terngrad:clip=off,block=2048").merge.value
    'int'
    """
    check_codec_names(text)
    draft = Draft(text)
    for part in text.split(">>"):
        draft.add(_link(part.strip(), text, total_steps), part.strip())
    return draft.codec()


def codec_of(value: CodecLike, total_steps: int | None = None) -> Codec:
    """What a user may give as a codec: a text, links (`TopK(0.01) >> Cast("bf16")`), or a codec.

    >>> codec_of(TernGrad(clip=2.0)).name
    'TernGrad(clip=2.0)'
    """
    if isinstance(value, str):
        return parse(value, total_steps)
    try:
        return Codec.of(value.links, value.name)
    except AttributeError:
        raise CodecError(
            f'{value!r} is no codec: give a text like "terngrad", or an object like tw.TernGrad(clip=2.0)'
        ) from None


def _link(part: str, text: str, total_steps: int | None) -> ChainLink:
    """What a part of a codec text stands for."""
    name, _, rest = (piece.strip() for piece in part.partition(":"))
    entry = CATALOG[name] if name in CATALOG else _own_entry(name, text)
    texts = option_texts(rest, entry.bare, name, f'codec "{text}"')
    for option in texts:
        if option in entry.fixed:
            raise CodecError(f'codec "{text}": {option} is fixed by the name "{name}"')
    options = read_options(entry.link, texts, f'codec "{text}": {name}', total_steps)
    return entry.link(**entry.fixed, **options)


def _own_entry(name: str, text: str) -> Entry:
    """A class of the user's, by its path; a bare value is for its first option."""
    module, _, cls = name.rpartition(".")
    try:
        link = getattr(importlib.import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise CodecError(
            f'codec "{text}": "{name}" cannot be imported ({error}): write module.Class, and see that the '
            "module is installed or on PYTHONPATH on every rank"
        ) from error
    if not (isinstance(link, type) and issubclass(link, ChainLink) and dataclasses.is_dataclass(link)):
        raise CodecError(
            f'codec "{text}": {name} is no link: derive it from thinwire.Coder or a stage, as a frozen '
            "dataclass (docs/adding-a-codec.md)"
        )
    options = [option.name for option in dataclasses.fields(link)]
    return Entry(link, "", bare=options[0] if options else None)
