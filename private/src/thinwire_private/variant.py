"""Variant: which protocols a program uses: one field per optimisation, so that each can be measured alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from thinwire_private.errors import ModelError
from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.extend import ONE_COT, SIRNN, UNKNOWN

CONVS = ("sirnn", "sirnn_swapped", "weight_bits", "adaptive")


@dataclass(frozen=True)
class Variant:
    """The switches.

    conv: whose bits are the choices of a product, or "adaptive": the cheaper side of each layer.
    single_truncation: one shift per layer instead of SiRNN's truncation by e and then by the rest.
    residual_at_accumulator: the shortcut is widened and added; else both operands are extended first.
    msb: how a known top bit is used when activations are extended.
    tight_acc: accumulator widths from the weights (a declared leak).
    ot: the OT extension. fused_relu: ReLU and truncation share one comparison (fewer flights, more bytes).
    split: products are made offline, from masks, with seeds that serve all queries of a client.
    clamp: exact clamp; without it numbers above 2^l_x - 1 lose their high bits (the fast mode).
    sci_mux: ReLU's MUX by chosen OT in all bits, as SCI does it.
    rlwe: products by ring-LWE where they are cheaper than by OT; needs `split`.
    bits: the widths at which the ladder runs it; "list" stands for mixed precision.
    """

    name: str
    conv: str = "adaptive"
    single_truncation: bool = True
    residual_at_accumulator: bool = True
    msb: str = ONE_COT
    tight_acc: bool = False
    ot: str = "kk13+iknp"
    fused_relu: bool = False
    split: bool = False
    clamp: bool = True
    sci_mux: bool = False
    rlwe: bool = False
    bits: str = "W4A6"

    def __post_init__(self) -> None:
        if self.conv not in CONVS:
            raise ModelError(f"conv {self.conv!r} is unknown: use one of {', '.join(CONVS)}")
        if self.msb not in (UNKNOWN, SIRNN, ONE_COT):
            raise ModelError(f"msb {self.msb!r} is unknown: use none, sirnn or one_cot")
        if self.rlwe and not (self.split and self.conv == "adaptive"):
            raise ModelError(
                "ring-LWE makes products offline, where they cost less: set split, and conv adaptive"
            )
        OtKind.read(self.ot)

    @property
    def kind(self) -> OtKind:
        """The OT extension."""
        return OtKind.read(self.ot)


_SIRNN = Variant(
    "B0",
    conv="sirnn",
    single_truncation=False,
    residual_at_accumulator=False,
    msb=SIRNN,
    clamp=False,
    sci_mux=True,
    bits="W16A16",
)
_S1 = replace(_SIRNN, name="S1", conv="weight_bits", msb=UNKNOWN, sci_mux=False, bits="W4A6")
_S2 = replace(_S1, name="S2", single_truncation=True, residual_at_accumulator=True)
_S3 = replace(_S2, name="S3", msb=SIRNN)
_S4 = replace(_S3, name="S4", msb=ONE_COT, conv="adaptive")
_S5 = replace(_S4, name="S5", tight_acc=True)
_S6 = replace(_S4, name="S6", bits="list")
_S7 = replace(_S6, name="S7", ot="softspoken:8", split=True, rlwe=True)
_OURS = replace(_S7, name="ours", clamp=True)

# The ladder of ../shared/private-inference.md, section 2, and what a user gets by default.
VARIANTS: Mapping[str, Variant] = MappingProxyType(
    {
        variant.name: variant
        for variant in (
            _SIRNN,
            replace(_SIRNN, name="B0'", conv="sirnn_swapped"),
            replace(_SIRNN, name="W8A8", bits="W8A8"),
            replace(_SIRNN, name="B1", bits="W4A6"),
            replace(_SIRNN, name="B1'", conv="sirnn_swapped", bits="W4A6"),
            _S1,
            _S2,
            _S3,
            _S4,
            _S5,
            _S6,
            replace(_S6, name="S6-clamp", clamp=True),
            replace(_S6, name="S6-split", split=True),
            replace(_S6, name="S6-ss2", ot="softspoken:2"),
            replace(_S6, name="S6-ss4", ot="softspoken:4"),
            replace(_S6, name="S6-ss8", ot="softspoken:8"),
            replace(_S6, name="S6-ss8-split", ot="softspoken:8", split=True),
            _S7,
            replace(_OURS, name="ours-ot", rlwe=False),
            replace(_OURS, name="ours-wan", fused_relu=True),
            replace(_OURS, name="ours-tight", tight_acc=True),
            _OURS,
        )
    }
)


def variant(name: str) -> Variant:
    """A variant of the ladder by name."""
    if name not in VARIANTS:
        raise ModelError(f"variant {name!r} is unknown: use one of {', '.join(VARIANTS)}")
    return VARIANTS[name]
