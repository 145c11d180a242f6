"""Range floats: R1-R3 of the number format, the fit of every payload, and what does not fit."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import thinwire as tw
from packing import bound, one_tensor, pack, payload_bytes
from simulation import Simulation, assert_ranks_agree, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.rangefloat import RangeFloat
from thinwire.errors import CodecError
from thinwire.groups.thread import ThreadGroup
from thinwire.kernels import Kernels
from thinwire.kernels.reference.rangefloat import Grid, positive_codes
from thinwire.kernels.sizes import stream_bytes
from thinwire.tensors import Layout, Spec

FORMATS = [
    (4, 0),
    (4, 1),
    (5, 2),
    (6, 2),
    (8, 3),
    (8, 4),
    (8, 5),
    (10, 4),
    (10, 5),
    (10, 6),
    (13, 9),
    (16, 11),
]
TINY, LARGEST = torch.finfo(torch.float32).tiny, torch.finfo(torch.float32).max
every_format = pytest.mark.parametrize(("bits", "mantissa"), FORMATS)


def pattern(x: float) -> int:
    return int(torch.tensor(x).view(torch.int32))


def numbers(grid: Grid) -> Tensor:
    """All positive numbers of a grid."""
    places = torch.arange(grid.base, grid.top + 1, dtype=torch.int64) << grid.shift
    return places.to(torch.int32).view(torch.float32)


def quantized(x: Tensor, bits: int, mantissa: int, largest: float, kernels: Kernels | None = None) -> Tensor:
    text = f"rangefloat:{bits},mantissa={mantissa},max={largest!r}"
    return pack(text, one_tensor(x.numel()), [x], kernels=kernels).own(0, x)


def normal(n: int, seed: int = 0) -> Tensor:
    return torch.randn(n, generator=torch.Generator().manual_seed(seed))


@every_format
@pytest.mark.parametrize("largest", [1.0, 0.3, 7e-5, 1e30])
def test_r1_all_codes_are_numbers_of_their_own(
    kernels: Kernels, bits: int, mantissa: int, largest: float
) -> None:
    """2P + 1 distinct numbers, each of them its own rounding; -x is coded as x is."""
    positive = numbers(Grid.of(pattern(largest), mantissa, bits))
    everything = torch.cat([-positive.flip(0), torch.zeros(1), positive])
    assert everything.numel() == 2 * positive_codes(bits) + 1
    assert (everything.diff() > 0).all()
    assert same_bits(quantized(everything, bits, mantissa, largest, kernels), everything)
    x = normal(5000) * largest
    assert torch.equal(quantized(-x, bits, mantissa, largest), -quantized(x, bits, mantissa, largest))


@every_format
def test_r2_rounding_is_monotone_and_to_the_nearest(bits: int, mantissa: int) -> None:
    largest = 0.7
    grid = Grid.of(pattern(largest), mantissa, bits)
    values = numbers(grid)
    eps, top = values[0].item(), values[-1].item()
    x = torch.cat([normal(4000), torch.logspace(-20, 1, 4000, base=2), values, values * 1.01]).sort().values
    q = quantized(x, bits, mantissa, largest)
    assert (q.diff() >= 0).all()
    assert (q[x.abs() >= largest].abs() == top).all()
    assert (q[x.abs() < eps / 2] == 0).all()
    assert (q[x.abs() >= eps / 2] != 0).all()
    inside = (x.abs() >= eps) & (x.abs() <= largest)
    assert ((q - x).abs()[inside] <= 2.0 ** -(mantissa + 1) * x.abs()[inside]).all()
    everything = torch.cat([-values.flip(0), torch.zeros(1), values]).double()
    clamped = x.double().clamp(-top, top)
    above = torch.searchsorted(everything, clamped).clamp(1, everything.numel() - 1)
    nearest = torch.minimum((everything[above] - clamped).abs(), (everything[above - 1] - clamped).abs())
    assert torch.equal((q.double() - clamped).abs(), nearest)


@given(
    bits=st.integers(4, 16),
    mantissa=st.integers(0, 14),
    largest=st.floats(TINY, LARGEST, width=32),
    a=st.floats(allow_nan=False, allow_infinity=False, width=32),
    b=st.floats(allow_nan=False, allow_infinity=False, width=32),
)
def test_r2_for_any_numbers(bits: int, mantissa: int, largest: float, a: float, b: float) -> None:
    mantissa = min(mantissa, bits - 2)
    grid = Grid.of(pattern(largest), mantissa, bits)
    x = torch.tensor([min(a, b), max(a, b), largest, -largest])
    q = quantized(x, bits, mantissa, largest)
    assert q[0] <= q[1]
    assert torch.isfinite(q).all()
    assert q[2] == -q[3] == numbers(grid)[-1]
    error, bound_on = (q - x).abs().double(), 2.0 ** -(mantissa + 1) * x.abs().double()
    inside = (x.abs() >= numbers(grid)[0]) & (x.abs() <= largest)
    cut = grid.top == 0x7F7FFFFF >> grid.shift  # beside infinity there is nothing to round up to
    assert (error[inside] <= (2 if cut else 1) * bound_on[inside]).all()


@every_format
@pytest.mark.parametrize("largest", [1.0, 3.3, TINY, 2 * TINY, 1e-37, 1e-30, LARGEST])
def test_r3_the_range_is_as_wide_as_the_codes_allow(bits: int, mantissa: int, largest: float) -> None:
    """eps is a normal float. Where the exponents end it is the first normal one, and fewer codes are used."""
    grid = Grid.of(pattern(largest), mantissa, bits)
    values = numbers(grid)
    assert grid.base > 0
    assert values[0] >= TINY
    num_codes = grid.top - grid.base + 1
    assert 1 <= num_codes <= positive_codes(bits)
    if num_codes < positive_codes(bits):
        assert values[0].item() == TINY
    binades = math.log2(values[-1].item()) - math.log2(values[0].item())
    assert abs(binades - (num_codes - 1) / 2**mantissa) <= 1


@pytest.mark.parametrize(
    ("bits", "mantissa", "binades", "error"),
    [
        (8, 3, 15.7, 0.0588),
        (8, 4, 7.8, 0.0303),
        (10, 4, 31.8, 0.0303),
        (10, 5, 15.9, 0.0154),
        (10, 6, 8.0, 0.0078),
    ],
)
def test_the_table_of_formats(bits: int, mantissa: int, binades: float, error: float) -> None:
    """log2(max / eps) and the largest relative error, as published for these formats."""
    values = numbers(Grid.of(pattern(1.0), mantissa, bits))
    assert -math.log2(values[0].item()) == pytest.approx(binades, abs=0.1)
    x = torch.linspace(0.25, 1.0, 100_001)
    q = quantized(x, bits, mantissa, 1.0)
    assert ((q - x).abs() / x).max().item() == pytest.approx(error, abs=1e-4)


def test_every_rank_has_a_fit_of_its_own() -> None:
    """The largest number of every rank is exact to its mantissa, however small beside the other ranks."""
    xs = [normal(700, seed=rank) * 10.0 ** (-6 * rank) for rank in range(4)]
    packed = pack("rangefloat:8", one_tensor(700), xs)
    for rank, x in enumerate(xs):
        own = packed.own(rank, x)
        assert own.abs().max().item() == pytest.approx(x.abs().max().item(), rel=2**-3)
        assert (own - x).norm() <= 0.05 * x.norm()


def test_a_wide_range_takes_fewer_mantissa_bits_than_a_narrow_one() -> None:
    narrow = 1 + 0.9 * torch.rand(4000, generator=torch.Generator().manual_seed(0))
    wide = torch.logspace(0, -9, 4000)
    packed = pack("rangefloat:8", one_tensor(4000), [narrow, wide])
    found = [codec.packer.tallies()["w"]["mantissa"] for codec in packed.codecs]
    assert found[0] == 5  # the most there are
    assert found[1] < 5


@pytest.mark.parametrize("bits", range(4, 17))
def test_the_mantissa_with_the_least_error_is_taken(bits: int) -> None:
    """Few numbers are all measured: no other mantissa errs less."""
    x = normal(3000)
    errors = []
    for mantissa in RangeFloat(bits).mantissas:
        q = pack(f"rangefloat:{bits},mantissa={mantissa}", one_tensor(3000), [x]).own(0, x)
        errors.append((q - x).double().square().sum() / x.double().square().sum())
    best = pack(f"rangefloat:{bits}", one_tensor(3000), [x])
    error = (best.own(0, x) - x).double().square().sum() / x.double().square().sum()
    assert error == pytest.approx(min(errors).item(), rel=1e-6)


@pytest.mark.parametrize("word", [0, 1])
def test_a_damaged_fit_is_refused(kernels: Kernels, word: int) -> None:
    """It came over the network: a negative maximum, or more mantissa bits than a float has."""
    x = normal(700)
    packed = pack("rangefloat:8", one_tensor(700), [x, x], kernels=kernels)
    packed.payloads[1].view(torch.int32)[-2 + word] = -1
    with pytest.raises(ValueError, match="mantissa bits wanted"):
        packed.mean(x)


def test_equal_errors_take_the_fewest_mantissa_bits() -> None:
    x = torch.full((100,), 2.0)
    packed = pack("rangefloat:10", one_tensor(100), [x])
    assert same_bits(packed.own(0, x), x)
    assert packed.codecs[0].packer.tallies()["w"]["mantissa"] == 2


def test_nothing_is_agreed_on() -> None:
    for text in ("rangefloat:10", "rangefloat:8,max=1.0,mantissa=3", "topk:0.1 >> rangefloat:10"):
        assert bound(text, one_tensor(700), 4).packer.max_words == 0


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("options", ["", ",mantissa=3", ",max=1.0", ",max=1.0,mantissa=3"])
def test_a_tensor_that_is_not_finite_is_so_everywhere(kernels: Kernels, options: str, number: float) -> None:
    layout = Layout.packed([Spec("a", (700,)), Spec("b", (1500,))])
    xs = [normal(2200, seed=rank) for rank in range(3)]
    xs[1][2000] = number
    packed = pack(f"rangefloat:8{options}", layout, xs, kernels=kernels)
    for found in (packed.mean(xs[0]), packed.own(1, xs[0])):
        assert torch.isfinite(found[:700]).all()
        assert found[700:].isnan().all()


def test_zeros_constants_and_denormals(kernels: Kernels) -> None:
    layout = Layout.packed(Spec(name, (77,)) for name in ("zeros", "minus zeros", "constant", "denormals"))
    x = torch.cat([torch.zeros(77), -torch.zeros(77), torch.full((77,), -0.1), torch.full((77,), 1.1e-38)])
    packed = pack("rangefloat:6", layout, [x, x], kernels=kernels)
    for found in (packed.mean(x), packed.own(0, x)):
        zeros, minus, constant, denormals = found.view(4, 77)
        for nothing in (zeros, minus, denormals):
            assert same_bits(nothing, torch.zeros(77))
        assert (constant + 0.1).abs().max() <= 0.1 * 2**-3
    tallies = packed.codecs[0].packer.tallies()
    assert tallies["denormals"]["underflow"] == 1
    assert tallies["zeros"]["underflow"] == tallies["constant"]["underflow"] == 0


def test_denormals_beside_the_first_normal_numbers(kernels: Kernels) -> None:
    x = torch.tensor([TINY, -TINY, 0.99 * TINY, 0.5 * TINY, 3 * TINY])
    found = pack("rangefloat:8,mantissa=3", one_tensor(5), [x], kernels=kernels).own(0, x)
    assert same_bits(found, torch.tensor([TINY, -TINY, 0.0, 0.0, 3 * TINY]))


def test_the_largest_floats_stay_finite(kernels: Kernels) -> None:
    """Beside infinity there is nothing to round up to; a sum of all ranks must not overflow either."""
    x = torch.full((500,), torch.finfo(torch.float32).max)
    packed = pack("rangefloat:8,mantissa=3", one_tensor(500), [x, x, x], kernels=kernels)
    for found in (packed.mean(x), packed.own(0, x)):
        assert torch.isfinite(found).all()
        assert ((x - found) / x).max() <= 2**-4


def test_what_does_not_fit_is_counted() -> None:
    x = torch.tensor([1.0, -1.0, 2.0, 1.01, -50.0, 0.5, 1e-6, -1e-7, 0.0, 0.25])
    codec = bound("rangefloat:8,mantissa=4,max=1.0", one_tensor(10))
    codec.packer.encode(x, codec.maxima(x), None, torch.empty(136, dtype=torch.uint8))  # type: ignore[arg-type]
    assert codec.packer.tallies() == {"w": {"mantissa": 4.0, "saturated": 0.2, "underflow": 0.2}}


def test_tallies_are_of_tensors_not_of_blocks() -> None:
    layout = Layout.packed([Spec("a", (100,)), Spec("empty", (0,)), Spec("b", (40,))])
    x = torch.ones(140)
    x[:50], x[100] = 4.0, 1e-9
    codec = bound("rangefloat:8,mantissa=4,max=2.0,block=32", layout)
    codec.packer.encode(x, codec.maxima(x), None, torch.empty(1024, dtype=torch.uint8))  # type: ignore[arg-type]
    found = codec.packer.tallies()
    assert found["a"] == {"mantissa": pytest.approx(4), "saturated": pytest.approx(0.5), "underflow": 0.0}
    assert found["b"] == {"mantissa": pytest.approx(4), "saturated": 0.0, "underflow": pytest.approx(1 / 40)}


@pytest.mark.parametrize(
    "text", ["rangefloat:8", "clip:2 >> rangefloat:6,max=0.5", "topk:0.3 >> rangefloat:8"]
)
def test_the_report_shows_what_did_not_fit(text: str) -> None:
    specs = specs_of({"w": (40, 37), "v": (64, 3)})
    simulation = Simulation(text, specs, 1)
    engine = simulation.engine(ThreadGroup.make(1)[0])
    simulation.step(engine, gaussian(specs)(0, 0))
    for layer in engine.statistics.layers.values():
        assert set(layer.tallies) == {"mantissa", "saturated", "underflow"}
        assert (layer.tallies["saturated"] > 0.1) == ("max" in text)


@pytest.mark.parametrize("bits", range(4, 17))
def test_bits_on_the_wire(bits: int) -> None:
    """Exactly `bits` an element and 8 bytes a fit; tensors lie end to end: only a lane has padding."""
    nbytes = payload_bytes(bound(f"rangefloat:{bits}", one_tensor(1024 * 31)).packer)
    assert 8 * (nbytes - 8) == bits * 1024 * 31
    layout = Layout.packed(Spec(f"t{i}", (i,)) for i in range(1, 200))
    nbytes = payload_bytes(bound(f"rangefloat:{bits}", layout).packer) - 8 * 199
    assert nbytes == stream_bytes(layout.numel, bits)
    assert bits * layout.numel <= 8 * nbytes < bits * (layout.numel + 32) + 8 * 128


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"bits": 3}, "bits=3 must be 4 to 16; for fewer use qsgd"),
        ({"bits": 17}, "bits=17 must be 4 to 16"),
        ({"bits": 8, "mantissa": 7}, "mantissa=7 must be 0 to bits - 2 = 6, or auto"),
        ({"mantissa": -1}, "mantissa=-1 must be 0 to"),
        ({"max": 0.0}, "max=0 must be a number from 1.175e-38"),
        ({"max": -1.0}, "max=-1 must be"),
        ({"max": math.inf}, "max=inf must be"),
        ({"max": math.nan}, "max=nan must be"),
        ({"max": 1e-39}, "max=1e-39 must be"),
        ({"block": 33}, "block=33 must be a multiple of 32, or layer"),
    ],
)
def test_bad_options(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        RangeFloat(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["rangefloat:many", "rangefloat:8,mantissa=few", "rangefloat:8,max=big"])
def test_bad_texts(text: str) -> None:
    with pytest.raises(CodecError, match="does not fit"):
        tw.parse(text)


def test_texts() -> None:
    assert tw.parse("rangefloat:8").coder == RangeFloat(8)
    assert tw.parse("rangefloat").coder == RangeFloat(10)
    assert tw.parse("rangefloat:8,mantissa=auto,max=auto,block=1048576").canonical == "RangeFloat(bits=8)"
    assert tw.parse("rangefloat:8,mantissa=3,max=0.1").canonical == "RangeFloat(bits=8,mantissa=3,max=0.1)"


def test_how_it_merges_and_what_it_remembers() -> None:
    assert RangeFloat().merge is Merge.GATHER
    assert {RangeFloat(bits).feedback for bits in range(6, 17)} == {"none"}
    for coarse in ({"bits": 4}, {"bits": 5}, {"max": 1.0}, {"mantissa": 1}, {"bits": 8, "mantissa": 6}):
        assert RangeFloat(**coarse).feedback == "residual"
    assert tw.parse("topk:0.1 >> rangefloat:8").feedback == "residual"


@pytest.mark.parametrize("text", ["rangefloat:8", "rangefloat:10,block=64", "topk:0.2 >> rangefloat:10"])
def test_an_exchange_with_very_different_ranks(kernels: Kernels, text: str) -> None:
    """Each rank's gradients have another size: all ranks end with the same bits, near the mean."""
    specs = specs_of({"w": (40, 37), "v": 33, "empty": 0})

    def source(step: int, rank: int) -> dict[str, Tensor]:
        return {name: g * 10.0**-rank for name, g in gaussian(specs)(step, rank).items()}

    means = Simulation(text, specs, 3, kernels=kernels).run(source, steps=2)
    assert_ranks_agree(means)
    if "topk" not in text:
        exact = torch.stack([source(0, rank)["w"] for rank in range(3)]).mean(0)
        assert (means[0][0]["w"] - exact).norm() <= 0.05 * exact.norm()


@pytest.mark.parametrize(
    "stage", ["gradiveq:4,slice=32,sample=2,compress=3,layers=all", "powersgd:2", "clip:9"]
)
def test_behind_a_stage(stage: str) -> None:
    specs = specs_of({"w": (40, 37), "v": (64, 64)})
    runs = [Simulation(f"{stage} >> {coder}", specs, 3) for coder in ("dense", "rangefloat:12")]
    floats, coded = (run.run(gaussian(specs), steps=4)[0] for run in runs)
    for name, mean in floats[0].items():
        assert (mean - coded[0][name]).norm() <= 0.01 * mean.norm()
    for means in coded:
        assert all(torch.isfinite(mean).all() for mean in means.values())
