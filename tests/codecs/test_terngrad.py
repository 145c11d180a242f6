"""TernGrad: its options, its bytes, and the properties T1-T4 and T6 of the paper's quantizer."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from packing import bound, one_tensor, pack, payload_bytes
from simulation import Simulation, same_bits, specs_of, sum_of
from thinwire.codecs.codec import parse
from thinwire.codecs.coder import Merge
from thinwire.codecs.terngrad import MAX_WORLD, TernGrad
from thinwire.errors import CodecError, PlanError
from thinwire.kernels import Kernels
from thinwire.kernels.sizes import digits_per_word
from thinwire.tensors import Layout, Spec


def draws(text: str, x: Tensor, count: int) -> Tensor:
    """`count` independent draws of Q(x), one per row."""
    layout = one_tensor(x.numel())
    return torch.stack([pack(text, layout, [x], step).own(0, x) for step in range(count)])


def scale_of(text: str, x: Tensor, kernels: Kernels | None = None) -> float:
    return float(pack(text, one_tensor(x.numel()), [x], kernels=kernels).shared[0].view(torch.float32))


def clipped(x: Tensor, c: float) -> Tensor:
    """The paper's f: sigma around the mean, the interval around zero."""
    limit = c * x.double().std(correction=0).item()
    return x.clamp(-limit, limit)


def gaussian(numel: int, seed: int = 0) -> Tensor:
    return torch.randn(numel, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("c", [math.inf, 2.5, 1.0])
def test_t1_unbiased_about_the_clipped_gradient(c: float) -> None:
    x = gaussian(512)
    f, num_draws = clipped(x, c), 2000
    text = f"terngrad:clip={'off' if math.isinf(c) else c}"
    s = scale_of(text, x)
    assert s == pytest.approx(f.abs().max().item(), rel=1e-6)
    tolerance = 5 * ((s * f.abs() - f**2).clamp(min=0) / num_draws).sqrt() + 1e-6
    assert ((draws(text, x, num_draws).mean(0) - f).abs() <= tolerance).all()


def test_t1_with_the_authors_scaler() -> None:
    """scaler=sigma: s = c * sigma, values beyond s always hit, so the same f is unbiased."""
    x = gaussian(512, seed=1)
    f, text, num_draws = clipped(x, 2.0), "terngrad:clip=2,scaler=sigma", 2000
    s = scale_of(text, x)
    assert s == pytest.approx(2.0 * x.double().std(correction=0).item(), rel=1e-6)
    tolerance = 5 * ((s * f.abs() - f**2).clamp(min=0) / num_draws).sqrt() + 1e-6
    assert ((draws(text, x, num_draws).mean(0) - f).abs() <= tolerance).all()


def test_t2_variance_is_that_of_the_paper() -> None:
    """E|Q - f|^2 = s |f|_1 - |f|^2."""
    x = gaussian(2048)
    f, s = clipped(x, 2.5), scale_of("terngrad", x)
    errors = (draws("terngrad", x, 400) - f).double().square().sum(1)
    expected = s * f.abs().sum().item() - f.square().sum().item()
    assert errors.mean().item() == pytest.approx(expected, abs=5 * errors.std().item() / math.sqrt(400))


def test_t2_worst_case_is_attained_by_the_extremal_vector() -> None:
    """E|Q|^2 / |g|^2 <= (1 + sqrt n) / 2, attained by one coordinate 1 and the rest 1 / (1 + sqrt n)."""
    n = 1024
    worst = (1 + math.sqrt(n)) / 2
    x = torch.full((n,), 1 / (1 + math.sqrt(n)))
    x[0] = 1.0
    for vector, limit in ((x, worst), (gaussian(n), worst)):
        energies = draws("terngrad:clip=off", vector, 400).double().square().sum(1)
        ratio = energies.mean().item() / vector.square().sum().item()
        spread = 5 * energies.std().item() / math.sqrt(400) / vector.square().sum().item()
        assert ratio <= limit + spread
        if vector is x:
            assert ratio == pytest.approx(worst, abs=spread)


@pytest.mark.parametrize(
    "text", ["terngrad", "terngrad:clip=off", "terngrad:scales=own", "terngrad:wire=2bit"]
)
def test_t3_values_are_minus_s_zero_and_s(kernels: Kernels, text: str) -> None:
    x = gaussian(1009)
    x[::7] = 0.0
    packed = pack(text, one_tensor(1009), [x], kernels=kernels)
    own = packed.own(0, x)
    s = own.abs().max()
    assert set(own.unique().tolist()) == {-s.item(), 0.0, s.item()}
    assert not own[::7].any()
    assert ((own == 0) | (own.sign() == x.sign())).all()
    large = x.abs() >= s
    assert large.any()
    assert torch.equal(own[large], x[large].sign() * s)


def test_t3_zeros_stay_zeros(kernels: Kernels) -> None:
    x = torch.zeros(321)
    packed = pack("terngrad", one_tensor(321), [x, x], kernels=kernels)
    assert same_bits(packed.mean(x), x)
    assert same_bits(packed.own(0, x), x)


@pytest.mark.parametrize("wire", ["base3", "2bit"])
def test_t4_trits_survive_for_every_length(kernels: Kernels, wire: str) -> None:
    """A tensor of -1, 0 and 1 with scale 1 is sent as it is, for every n mod 4, mod 5 and mod 32."""
    for numel in (*range(37), 127, 128, 129, 159, 160, 161, 1009):
        x = torch.randint(-1, 2, (numel,), generator=torch.Generator().manual_seed(numel)).float()
        x[:1] = 1.0
        packed = pack(f"terngrad:clip=off,wire={wire}", one_tensor(numel), [x], kernels=kernels)
        assert same_bits(packed.own(0, x), x)
        assert same_bits(packed.mean(x), x)


def test_t6_a_gaussian_gradient() -> None:
    """Clipped at 2.5 sigma: length -1.13 %, direction 2.75 degrees, 68.2 % zeros."""
    x = gaussian(1_000_000)
    f = clipped(x, 2.5)
    assert (f.norm() / x.norm()).item() == pytest.approx(0.9887, rel=0.01)
    angle = math.degrees(math.acos((f @ x / f.norm() / x.norm()).item()))
    assert angle == pytest.approx(2.75, rel=0.01)
    own = pack("terngrad", one_tensor(x.numel()), [x]).own(0, x)
    assert (own == 0).float().mean().item() == pytest.approx(0.682, rel=0.01)
    assert (own @ f / f.norm() ** 2).item() == pytest.approx(1.0, rel=0.01)


def test_constant_layers_are_not_clipped(kernels: Kernels) -> None:
    for value, numel in itertools.product((0.1, 3.3, 1e-3), (1000, 4099, 10007, 65537)):
        x = torch.full((numel,), value)
        assert scale_of("terngrad", x, kernels) == x[0].item()


def test_every_layer_has_its_own_scale() -> None:
    layout = Layout.packed([Spec("a", (100,)), Spec("b", (50,))])
    x = torch.cat([gaussian(100), 1e3 * gaussian(50)])
    scales = pack("terngrad:clip=off", layout, [x]).shared[0].view(torch.float32)
    assert scales.tolist() == [x[:100].abs().max().item(), x[100:].abs().max().item()]


def test_every_block_has_its_own_scale() -> None:
    x = gaussian(100)
    scales = pack("terngrad:clip=off,block=32", one_tensor(100), [x]).shared[0].view(torch.float32)
    assert scales.tolist() == [block.abs().max().item() for block in x.split(32)]


def test_shared_scales_are_the_largest_of_all_ranks() -> None:
    xs = [gaussian(100, seed) * (seed + 1) for seed in range(3)]
    shared = pack("terngrad:clip=off", one_tensor(100), xs)
    assert shared.shared[0].view(torch.float32).item() == max(x.abs().max().item() for x in xs)
    own = pack("terngrad:clip=off,scales=own", one_tensor(100), xs)
    assert own.shared[0].numel() == 0
    assert [own.own(r, xs[0]).abs().max().item() for r in range(3)] == [x.abs().max().item() for x in xs]


def test_draws_do_not_depend_on_the_other_tensors() -> None:
    """Counters start with the tensor, keys come from its name: its trits are the same in any lane."""
    a, b = gaussian(200, 1), gaussian(333, 2)
    alone = pack("terngrad", Layout.packed([Spec("b", (333,))]), [b]).own(0, b)
    both = pack("terngrad", Layout.packed([Spec("a", (200,)), Spec("b", (333,))]), [torch.cat([a, b])])
    assert same_bits(both.own(0, torch.cat([a, b]))[200:], alone)


def own_bytes(n: int) -> int:
    """Units of a million elements, each in whole granules; a scale a block, in whole multiples of 8 bytes."""
    units = [1 << 20] * (n >> 20) + [n % (1 << 20)] * (n % (1 << 20) > 0)
    nbytes = sum(-(-unit // 160) * 32 + 4 * -(-unit // 64) for unit in units)
    return -(-nbytes // 8) * 8


@pytest.mark.parametrize(
    ("text", "bytes_of"),
    [
        ("terngrad", lambda n: -(-n // 160) * 32),
        ("terngrad:wire=2bit", lambda n: -(-n // 128) * 32),
        ("terngrad:scales=own", lambda n: -(-n // 160) * 32 + 8),
        ("terngrad:scales=own,block=64", own_bytes),
    ],
)
def test_payloads_have_the_bytes_of_the_wire_format(text: str, bytes_of: Callable[[int], int]) -> None:
    for numel in (1, 31, 160, 161, 6400, 6553600):
        assert payload_bytes(bound(text, one_tensor(numel)).packer) == bytes_of(numel)


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 8, 16, 64, 1000])
def test_sums_take_just_enough_bits(world: int) -> None:
    """Within 7 % of log2(2N + 1) bit an element for small worlds: 32 bit words hold whole digits."""
    packer = bound("terngrad", one_tensor(1_000_000), world).packer
    bits = 8 * packer.merged_bytes(packer.num_granules) / 1_000_000
    digits = digits_per_word(2 * world + 1)
    assert (2 * world + 1) ** digits <= 2**32 < (2 * world + 1) ** (digits + 1)
    assert bits == pytest.approx(32 / digits, rel=1e-2)
    assert bits >= math.log2(2 * world + 1)


def test_the_largest_world() -> None:
    bound("terngrad", one_tensor(10), MAX_WORLD)
    with pytest.raises(PlanError, match="at most 32767 workers, not 32768"):
        bound("terngrad", one_tensor(10), MAX_WORLD + 1)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"clip": 0.0}, "clip=0 must be positive; use clip=off"),
        ({"clip": -1.0}, "clip=-1 must be positive"),
        ({"clip": math.nan}, "clip=nan must be positive"),
        ({"block": 33}, "block=33 must be a multiple of 32, or layer"),
        ({"block": -32}, "block=-32 must be a multiple of 32"),
        ({"scaler": "sigma", "clip": math.inf}, "scaler=sigma is c\\*sigma, so it needs clip"),
    ],
)
def test_bad_options(options: dict[str, Any], sentence: str) -> None:
    with pytest.raises(CodecError, match=sentence):
        TernGrad(**options)


def test_how_it_merges() -> None:
    assert TernGrad().merge is Merge.INT
    assert TernGrad(scales="own").merge is Merge.GATHER
    assert not TernGrad().own_dtype
    assert not TernGrad().near_lossless


@pytest.mark.parametrize(
    ("text", "feedback"), [("", "none"), ("2", "none"), ("1.5", "residual"), ("1", "residual")]
)
def test_a_clip_that_cuts_is_a_bias_and_has_a_memory(text: str, feedback: str) -> None:
    assert parse(f"terngrad:{text}" if text else "terngrad").feedback == feedback


def test_with_a_low_clip_it_is_a_contraction_and_nothing_is_lost() -> None:
    """E|Q(g) - g|^2 on a Gaussian: 0.27 |g|^2 at c = 1, so errors are sent later and do not pile up."""
    specs = specs_of({"w": 20_000})
    steady = gaussian(20_000)
    low = Simulation("terngrad:1", specs, world=1)
    once = low.run(lambda step, rank: {"w": steady})[0][0]["w"]
    assert (once - steady).square().sum() / steady.square().sum() == pytest.approx(0.27, abs=0.02)
    sent = low.run(lambda step, rank: {"w": steady}, steps=60)[0]
    left = 60 * steady - sum_of(means["w"] for means in sent)
    assert left.norm() < 3 * steady.norm()
    without = low.but(feedback="none").run(lambda step, rank: {"w": steady}, steps=60)[0]
    assert (60 * steady - sum_of(means["w"] for means in without)).norm() > 15 * steady.norm()
