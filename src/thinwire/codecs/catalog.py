"""The one list of codecs by name. It imports no torch: a misspelt name is refused at once."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from thinwire.errors import CodecError
from thinwire.texts import first_word, known_names

AUTO = "auto"  # not a codec: the one that is quickest here


@dataclass(frozen=True)
class CodecEntry:
    """The class behind a name, the options the name fixes, the option a bare value is for (`topk:0.01`)."""

    home: str  # module in thinwire.codecs and class
    about: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    bare: str | None = None

    @property
    def module(self) -> str:
        return f"thinwire.codecs.{self.home.partition('.')[0]}"

    @property
    def class_name(self) -> str:
        return self.home.partition(".")[2]

    def load(self) -> Any:
        """The class."""
        return getattr(importlib.import_module(self.module), self.class_name)


CATALOG: Mapping[str, CodecEntry] = MappingProxyType(
    {
        "dense": CodecEntry("floats.Dense", "the gradient as it is"),
        "fp16": CodecEntry("floats.Cast", "16-bit floats, 5 bits of exponent", {"to": "fp16"}),
        "bf16": CodecEntry("floats.Cast", "16-bit floats, 8 bits of exponent", {"to": "bf16"}),
        "terngrad": CodecEntry("terngrad.TernGrad", "{-1, 0, +1} times a scale per layer", bare="clip"),
        "clip": CodecEntry("clip.Clip", "stage: cut at c standard deviations", bare="c"),
        "ternary": CodecEntry(
            "terngrad.TernGrad", "terngrad without clipping, for chains", {"clip": float("inf")}
        ),
        "qsgd": CodecEntry("qsgd.QSGD", "a few bits times a scale per block", bare="bits"),
        "rotate": CodecEntry("rotate.Rotate", "stage: blocks turned at random", bare="block"),
        "rotated": CodecEntry("rotated.Rotated", "3, 7 or 15 levels of rotated blocks", bare="levels"),
        "natural": CodecEntry("natural.Natural", "signs and powers of two, 9 bits per element"),
        "rangefloat": CodecEntry(
            "rangefloat.RangeFloat", "floats of a few bits, fitted to each layer", bare="bits"
        ),
        "sign": CodecEntry("sign.Sign", "one bit and two values per block"),
        "topk": CodecEntry("topk.TopK", "the largest elements and their indices", bare="ratio"),
        "dgc": CodecEntry("topk.DGC", "topk with momentum correction and a warm-up", bare="ratio"),
        "bins": CodecEntry("sparseloco.Bins", "two bits, four values per tensor"),
        "sparseloco": CodecEntry(
            "sparseloco.SparseLoCo", "64 of 4,096 elements in two bits, for local steps", bare="k"
        ),
        "gradiveq": CodecEntry("gradiveq.GradiVeQ", "slices in a basis all ranks share", bare="ratio"),
        "powersgd": CodecEntry("powersgd.PowerSGD", "matrices as products of two thin ones", bare="rank"),
        "fourier": CodecEntry("fft.Fourier", "stage: chunks as frequencies", bare="chunk"),
        "dct": CodecEntry("fft.DCT", "stage: chunks as cosines", bare="chunk"),
        "fft": CodecEntry("fft.FFT", "the strongest frequencies and their indices", bare="theta"),
    }
)


def check_codec_names(text: str) -> None:
    """Refuses a codec text that names a link that does not exist; its options are not looked at.

    A name with a dot is a class of the user's own, which only `parse` can look up.

    >>> check_codec_names("gradiveq:8 >> qsgd:4")
    """
    if "@" in text:
        raise CodecError(
            f'codec "{text}": options behind @ are for the whole model, and here is one of several codecs: '
            "leave them out and pass feedback=, route= or schedule= to compress"
        )
    for part in text.split(">>"):
        name = first_word(part)
        if name not in CATALOG and "." not in name:
            known = tuple(CATALOG) if ">>" in text else (*CATALOG, AUTO)
            raise CodecError(f'codec "{text}": there is no codec "{name}": {known_names(name, known)}')
