"""The fourier stage and "fft": F1 to F5 and E1 of the papers, bad numbers, bytes, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from spectra import CHUNKS, SIZES, ar1, coordinates, energy, loss, sent, white
from torch import Tensor

import thinwire as tw
from packing import bound, one_tensor, pack, payload_bytes
from simulation import Simulation, assert_ranks_agree, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.fft import Fourier
from thinwire.codecs.topk import TopK, TopKPacker
from thinwire.errors import CodecError, PlanError
from thinwire.kernels import Kernels
from thinwire.tensors import Layout, Spec

THETAS = (0.0, 0.1, 0.29, 0.5, 0.85, 0.97, 0.999)


def pairs_by_the_definition(x: Tensor) -> Tensor:
    """One chunk, in float64, by a plain DFT."""
    n = x.numel()
    j = torch.arange(n, dtype=torch.float64)
    pairs = []
    for k in range(-(-n // 2)):
        angle = 2 * math.pi * k * j / n
        weight = math.sqrt((1 if k == 0 else 2) / n)
        pairs.append(
            [weight * (x.double() @ angle.cos()).item(), -weight * (x.double() @ angle.sin()).item()]
        )
    nyquist = (x.double() @ (1 - 2 * (j % 2))).item() / math.sqrt(n) if n % 2 == 0 else 0.0
    pairs[0][1] = nyquist
    return torch.tensor(pairs, dtype=torch.float64).flatten()


@pytest.mark.parametrize("numel", [1, 2, 3, 4, 5, 31, 64, 65])
def test_pairs_are_those_of_the_definition(numel: int) -> None:
    x = white(numel)
    torch.testing.assert_close(
        coordinates("fourier >> dense", x).double(), pairs_by_the_definition(x), rtol=0, atol=2e-6
    )


@pytest.mark.parametrize("chunk", CHUNKS)
@pytest.mark.parametrize("numel", SIZES)
def test_f1_parseval_and_back(numel: int, chunk: int | str) -> None:
    """The weights 1, 2, ..., 2, (1) are built in; chunks longer than the tensor are one short chunk."""
    x, text = white(numel), f"fourier:{chunk} >> dense"
    y = coordinates(text, x)
    assert y.numel() == numel + numel % 2
    assert energy(y) == pytest.approx(energy(x), rel=1e-6)
    torch.testing.assert_close(sent(text, x), x, rtol=0, atol=4e-6)


def test_chunks_are_transformed_one_by_one() -> None:
    x = white(150)
    expected = torch.cat([coordinates("fourier >> dense", part) for part in x.split(64)])
    torch.testing.assert_close(coordinates("fourier:64 >> dense", x), expected, rtol=0, atol=1e-6)


@given(
    numel=st.sampled_from((1, 2, 7, 100, 1009, 4500)),
    theta=st.sampled_from(THETAS),
    chunk=st.sampled_from((16, 4096, "tensor")),
    seed=st.integers(0, 1000),
    rho=st.sampled_from((0.0, 0.9)),
)
def test_f2_it_is_a_projection_that_drops_at_most_theta(
    kernels: Kernels, numel: int, theta: float, chunk: int | str, seed: int, rho: float
) -> None:
    """E1 too: the bound holds whatever n and theta are, because floor(theta * bins) are dropped."""
    x, text = ar1(numel, rho, seed), f"fft:{theta},chunk={chunk} >> dense"
    kept = sent(text, x, kernels)
    lost, total = x - kept, energy(x)
    assert energy(lost) <= theta * total + 1e-6 * total
    assert abs((kept.double() @ lost.double()).item()) <= 1e-6 * total
    assert energy(kept) <= total * (1 + 1e-6)
    torch.testing.assert_close(sent(text, kept, kernels), kept, rtol=0, atol=1e-5)  # idempotent


@pytest.mark.parametrize("numel", [20, 100, 4096])
def test_e1_is_attained_by_a_flat_spectrum(numel: int) -> None:
    x = torch.zeros(numel)
    x[3] = 1.0
    dropped = math.floor(0.85 * (numel // 2) + 1e-9)
    # all bins hold as much but the first, whose two numbers are 1/n each: no less
    assert loss("fft:0.85,chunk=tensor >> dense", x) == pytest.approx(2 * dropped / numel, abs=1e-6)


def test_more_theta_drops_more() -> None:
    x = ar1(5000, 0.7)
    losses = [loss(f"fft:{theta} >> dense", x) for theta in THETAS]
    assert losses == sorted(losses)
    assert losses[0] < 1e-12
    assert 0.5 < losses[-1] < 1


@pytest.mark.parametrize(
    ("theta", "bins", "kept"),
    [
        (0.85, 20, 3),
        (0.85, 100, 15),
        (0.29, 100, 71),
        (0.999, 10, 1),
        (0.0, 10, 10),
        (0.7, 10, 3),
        (0.1, 9, 9),
    ],
)
def test_floor_of_theta_as_it_is_written(theta: float, bins: int, kept: int) -> None:
    """0.29 * 100 is 28.999999999999996 in floats, and 29 to everybody else."""
    assert TopK(drop=theta).kept(Spec("w", (2 * bins,)), group=2) == [(bins, 1, kept)]


@pytest.mark.parametrize("world", [2, 5])
def test_f3_spectra_are_added_and_one_inverse_follows(kernels: Kernels, world: int) -> None:
    xs = [ar1(3001, 0.6, seed) for seed in range(world)]
    packed = pack("fft:0.7 >> dense", one_tensor(3001), xs, kernels=kernels)
    mean = torch.stack([packed.own(rank, xs[0]).double() for rank in range(world)]).mean(0)
    torch.testing.assert_close(packed.mean(xs[0]).double(), mean, rtol=0, atol=2e-6)


def test_f4_correlated_neighbours_pay_white_noise_does_not() -> None:
    """Dropped energy at 15 % kept; break-even near rho = 0.5 (papers.md 3.3)."""
    numel = 1 << 15

    def both(rho: float) -> tuple[float, float]:
        x = ar1(numel, rho) if rho else white(numel)
        return loss("fft:0.85 >> dense", x), loss("topk:0.15 >> dense", x)

    frequency, place = both(0.0)
    assert (frequency, place) == (pytest.approx(0.569, abs=0.01), pytest.approx(0.441, abs=0.01))
    frequency, place = both(0.9)
    assert frequency == pytest.approx(0.108, abs=0.01)
    assert place > 4 * frequency
    assert both(0.3)[0] > both(0.3)[1]
    assert both(0.7)[0] < both(0.7)[1]


@pytest.mark.parametrize("numel", [1, 2, 33, 1000, 4097, 100_000])
@pytest.mark.parametrize("theta", [0.3, 0.5, 0.85, 0.99])
def test_f5_bytes(numel: int, theta: float) -> None:
    """Never more than a bit map, two numbers for every kept bin and a scale, on multiples of 8 bytes."""
    bins = -(-numel // 2)
    kept = TopK(drop=theta).kept(Spec("w", (2 * bins,)), group=2)[0][2]
    nbytes = payload_bytes(bound(f"fft:{theta} >> fp16", one_tensor(numel)).packer)
    values = -(-kept * 2 * 2 // 8) * 8
    assert values <= nbytes <= -(-bins // 64) * 8 + values + 8


def test_two_bits_an_element() -> None:
    """15 % of 10 bits, and places: 1.85, where the paper's bit map would make it 2.0."""
    packer = bound("fft:0.85", one_tensor(6_553_600)).packer
    assert 8 * payload_bytes(packer) / 6_553_600 == pytest.approx(1.8501, abs=1e-3)


def test_theta_zero_sends_no_places() -> None:
    packer = bound("fft:0 >> dense", one_tensor(1000)).packer
    assert payload_bytes(packer) == 4000


def test_zeros_and_constants(kernels: Kernels) -> None:
    for numel in (64, 4096, 9000):
        x = torch.zeros(numel)
        assert not sent("fft:0.85", x, kernels).any()
        constant = torch.full((numel,), -0.37)
        for text in ("fft:0.99 >> dense", "dct >> topk:0.01 >> dense"):
            torch.testing.assert_close(sent(text, constant, kernels), constant, rtol=1e-6, atol=0)
        torch.testing.assert_close(sent("fft:0.9", constant, kernels), constant, rtol=2**-4, atol=0)
    x = torch.full((4096,), 0.75)
    assert same_bits(sent("fft:0.99 >> dense", x, kernels), x)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("stage", ["fourier:{}", "dct:{}"])
@pytest.mark.parametrize("chunk", [64, "tensor"])
def test_bad_numbers_spoil_their_chunk_and_no_other(stage: str, chunk: int | str, bad: float) -> None:
    numel = 500
    for place in (0, 63, 200, 499):
        xs = [white(numel, rank) for rank in range(3)]
        xs[1][place] = bad
        text = f"{stage.format(chunk)} >> topk:0.02 >> dense"
        mean = pack(text, one_tensor(numel), xs).mean(xs[0])
        first, size = (place // 64 * 64, 64) if chunk == 64 else (0, numel)
        assert not torch.isfinite(mean[first : first + size]).all()
        spoiled = torch.zeros(numel, dtype=torch.bool)
        spoiled[first : first + size] = True
        assert torch.isfinite(mean[~spoiled]).all()


def test_denormals_are_transformed() -> None:
    x = white(1000) * 1e-41
    assert loss("fft:0.5 >> dense", x) <= 0.5 + 1e-3


def test_results_depend_neither_on_the_bucket_nor_on_the_place_in_it() -> None:
    """To the bit, although an FFT's last bits depend on how its input is aligned."""
    specs = specs_of({"a": (40, 30), "b": 777, "c": (5, 5, 5), "d": 9000})
    simulation = Simulation("fft:0.7,chunk=128", specs, 3)
    expected = simulation.run(gaussian(specs), steps=3)
    assert_ranks_agree(expected)
    other = simulation.but(buckets=(("c", "b"), ("d",), ("a",))).run(gaussian(specs), steps=3)
    for first, again in zip(expected[0], other[0], strict=True):
        assert all(same_bits(first[spec.name], again[spec.name]) for spec in specs)


@pytest.mark.parametrize("shift", range(0, 20, 3))
def test_the_place_in_memory_changes_no_bits(shift: int) -> None:
    x, numel = white(10_000), 10_000
    expected = pack("fourier:100 >> dense", one_tensor(numel), [x])
    there = torch.zeros(numel + 32)
    there[shift : shift + numel] = x
    moved = pack("fourier:100 >> dense", Layout((Spec("w", (numel,)),), (shift,)), [there])
    assert same_bits(moved.payloads[0], expected.payloads[0])
    assert same_bits(moved.own(0, there)[shift : shift + numel], expected.own(0, x))


def test_an_inner_coder_fits_what_was_chosen(kernels: Kernels) -> None:
    """Nothing is agreed on: the fit of a range float behind a selection is that of the rank's own numbers."""
    xs = [white(3000, rank) * (1 + rank) for rank in range(3)]
    for text in ("fft:0.85", "topk:0.15 >> rangefloat:10", "dct >> topk:0.15 >> rangefloat:10"):
        packed = pack(text, one_tensor(3000), xs, kernels=kernels)
        assert packed.shared[0].numel() == 0
        for rank, x in enumerate(xs):
            exact = sent(text.split(" >> rangefloat")[0].replace("fft:0.85", "fft:0.85 >> dense"), x, kernels)
            assert energy(packed.own(rank, x) - exact) < 1e-3 * energy(x)


def test_the_name_is_a_chain() -> None:
    codec = tw.parse("fft:0.9,chunk=1024")
    assert codec.stages == (Fourier(1024),)
    assert codec.selecting == TopK(drop=0.9)
    assert str(codec) == "fft:0.9,chunk=1024"
    assert codec.canonical == tw.parse("fourier:1024 >> topk:drop=0.9 >> rangefloat:10").canonical
    assert (codec.merge, codec.feedback) == (Merge.GATHER, "residual")
    assert tw.parse("fourier >> fp16").feedback == "none"
    assert tw.parse("fourier >> fp16").merge is Merge.SUM


def test_clip_between_keeps_pairs_together(kernels: Kernels) -> None:
    x = white(1000)
    packer = bound("fourier >> clip:3 >> topk:0.1 >> dense", one_tensor(1000), kernels=kernels).packer
    assert isinstance(packer, TopKPacker)
    assert packer.num_values == 100
    kept = coordinates("fourier >> dense", sent("fourier >> clip:9 >> topk:0.1 >> dense", x, kernels))
    pairs = kept.view(-1, 2).abs() > 1e-5
    assert int(pairs.any(1).sum()) == 50
    assert int(pairs.all(1).sum()) > 45


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            "fft:1",
            "fft: theta=1, the part of the frequencies that is dropped, must be at least 0 and less than 1",
        ),
        ("fft:-0.1", "fft: theta=-0.1, the part"),
        ("fft:nan", "fft: theta=nan, the part"),
        ("fft:most", 'fft: theta="most" does not fit: a part of the frequencies'),
        ("fft:0.5,chunk=7", "fft: chunk=7 must be an even number of at least 2, or tensor"),
        ("fft:0.5,chunk=0", 'fft: chunk="0" does not fit: "tensor", or an even number of elements'),
        ("fft:0.5,ratio=3", 'fft has no option "ratio": it takes theta, chunk'),
        ("fourier:-2 >> dense", "fourier: chunk=-2 must be an even number"),
        ("dct:33 >> dense", "dct: chunk=33 must be an even number"),
        ("dct:all >> dense", 'dct: chunk="all" does not fit: "tensor", or an even number of elements'),
        ("fourier", 'codec "fourier" ends in a stage: add a coder behind it'),
        ("fft:0.5 >> ternary", "topk cannot feed terngrad with shared scales"),
        ("fft:0.5 >> topk:0.1", 'nothing but a coder can follow a stage that selects, not "topk:0.1"'),
        ("fourier >> gradiveq", '"gradiveq" learns from the mean, so it must be the first link'),
        ("topk:drop=1", "topk: drop=1, the part that is dropped, must be at least 0 and less than 1"),
        ("topk:0.1,drop=0.5", "topk: ratio=0.1 and drop=0.5 both say how much is kept; give one"),
    ],
)
def test_bad_texts(text: str, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        tw.parse(text)
    assert sentence in str(caught.value)


def test_odd_chunks_of_topk_behind_fourier() -> None:
    with pytest.raises(PlanError, match="chunk=33 must be a multiple of 2 behind fourier"):
        Simulation("fourier >> topk:0.1,chunk=33", specs_of({"w": 500}), 2).plan  # noqa: B018
