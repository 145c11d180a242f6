"""Costs: SiRNN-style operators cost what SiRNN's own code was measured to cost; formulas of the note hold."""

from __future__ import annotations

import pytest

from thinwire_private.copriv import copriv_costs
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build
from thinwire_private.ot.kind import OtKind
from thinwire_private.protocols.b2a import B2A, Mux
from thinwire_private.protocols.comparison import Mill
from thinwire_private.protocols.extend import ONE_COT, SIRNN, Extend, Truncate
from thinwire_private.protocols.linear import Shape, Sirnn, SirnnSwapped, WeightBits
from thinwire_private.protocols.operator import Operator
from thinwire_private.protocols.sign import Msb, Relu

KIND = OtKind.read("kk13+iknp")
N = 65536

# Bits per element that SCI was measured to send for 65,536 elements, both directions.
SCI: dict[str, tuple[Operator, float]] = {
    **{
        f"mill {bits}": (Mill(N, bits, KIND), measured)
        for bits, measured in {4: 272, 8: 724, 12: 1160, 16: 1744, 20: 2180, 32: 3932}.items()
    },
    "msb 16": (Msb(N, 16, KIND), 1744),
    "b2a 16": (B2A(N, 16, KIND), 144),
    "mux 16": (Mux(N, 16, KIND), 288),
    **{
        f"relu {bits}": (Relu(N, bits, KIND, chosen=True), measured)
        for bits, measured in {8: 1012, 16: 2064, 32: 4316}.items()
    },
    "extend 8 16": (Extend(N, 8, 16, KIND), 860),
    "extend 16 32": (Extend(N, 16, 32, KIND), 1888),
    "extend 8 16 msb": (Extend(N, 8, 16, KIND, SIRNN), 396),
    "extend 16 32 msb": (Extend(N, 16, 32, KIND, SIRNN), 404),
    "extend 8 16 one cot": (Extend(N, 8, 16, KIND, ONE_COT), 136),
    "truncate 16 8": (Truncate(N, 16, 8, KIND), 860),
    "truncate 16 10": (Truncate(N, 16, 10, KIND), 1294),
    "truncate 32 16": (Truncate(N, 32, 16, KIND), 1888),
}


@pytest.mark.parametrize("name", SCI)
def test_bits_per_element_are_those_measured_in_sci(name: str) -> None:
    operator, measured = SCI[name]
    assert operator.predict_bytes() * 8 / N == pytest.approx(measured, rel=0.02)


@pytest.mark.parametrize(
    ("form", "weight_bits", "in_bits", "measured_mb"),
    [
        (Sirnn, 16, 16, 214.2),
        (Sirnn, 4, 6, 57.6),
        (SirnnSwapped, 16, 16, 180.1),
        (SirnnSwapped, 4, 6, 38.2),
    ],
)
def test_matrix_products_are_those_measured_in_sci(
    form: type[Sirnn] | type[SirnnSwapped], weight_bits: int, in_bits: int, measured_mb: float
) -> None:
    shape = Shape(16, 144, 1024, weight_bits)
    width = weight_bits + in_bits + shape.sum_bits
    product = form(shape, in_bits, width, KIND, SIRNN)
    truncation = Truncate(16 * 1024, width, shape.sum_bits, KIND)
    found = product.predict_bytes() + truncation.predict_bytes()
    assert found / 1e6 == pytest.approx(measured_mb, rel=0.02)


def test_weight_bits_cost_what_the_formula_says() -> None:
    payload = 1024 * sum(18 - bit for bit in range(4))
    bits = 16 * 144 * (4 * 128 + payload)
    found = WeightBits(Shape(16, 144, 1024, 4), 18, KIND).predict_bytes() * 8
    assert found == pytest.approx(bits, rel=1e-4)


@pytest.mark.parametrize("k", [1, 2, 4, 8])
def test_softspoken_divides_the_rows_by_k(k: int) -> None:
    assert OtKind(k).row_bytes(8000) == 128_000 // k
    one, found = (B2A(N, 16, OtKind(each)).predict_bytes() * 8 / N for each in (1, k))
    assert one - found == pytest.approx(128 - 128 / k, abs=0.1)


@pytest.mark.parametrize(
    ("net", "plain_mb", "winograd_mb"), [("resnet32", 6728, 3503), ("minionn", 5679, 2800)]
)
def test_the_copriv_like_baseline_is_near_the_notes_model(
    net: str, plain_mb: float, winograd_mb: float
) -> None:
    graph = build(net, read_bits("W4A6"))
    for winograd, expected in ((False, plain_mb), (True, winograd_mb)):
        total = sum(row.traffic.total_bytes for row in copriv_costs(graph, winograd))
        assert total / 1e6 == pytest.approx(expected, rel=0.05)
