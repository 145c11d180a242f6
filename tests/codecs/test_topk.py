"""Top-k: what is kept, how many bytes that takes, E1 and E3 of the papers, and what is refused."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import thinwire as tw
from packing import bound, one_tensor, pack, payload_bytes
from simulation import Gradients, Simulation, assert_ranks_agree, gaussian, same_bits, specs_of
from thinwire.codecs.coder import Merge
from thinwire.codecs.topk import TopK, best_low_bits
from thinwire.errors import CodecError, PlanError
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import Kernels
from thinwire.tensors import Layout, Spec


def sent(text: str, x: Tensor, kernels: Kernels | None = None) -> Tensor:
    """What the payload of x stands for."""
    return pack(text, one_tensor(x.numel()), [x], kernels=kernels).own(0, x)


def expected_topk(x: Tensor, k: int) -> Tensor:
    """By the definition, element by element."""
    bits = (x.view(torch.int32) & 0x7FFFFFFF).tolist()
    chosen = sorted(range(len(bits)), key=lambda i: (-bits[i], i))[:k]
    result = torch.zeros_like(x)
    result[chosen] = x[chosen]
    return result


@given(
    numel=st.sampled_from((1, 2, 33, 500, 1009)),
    ratio=st.sampled_from((0.001, 0.01, 0.1, 0.37, 1.0)),
    levels=st.sampled_from((1, 3, 1000)),
    seed=st.integers(0, 1000),
)
def test_it_keeps_the_largest(kernels: Kernels, numel: int, ratio: float, levels: int, seed: int) -> None:
    x = (torch.randn(numel, generator=torch.Generator().manual_seed(seed)) * levels).round() / levels
    k = max(1, round(ratio * numel))
    own = sent(f"topk:{ratio}", x, kernels)
    assert same_bits(own, expected_topk(x, k) + 0.0)


@given(numel=st.integers(1, 400), ratio=st.floats(0.001, 1.0), seed=st.integers(0, 1000))
def test_e1_contraction(numel: int, ratio: float, seed: int) -> None:
    """||x - topk(x)||^2 <= (1 - k/n) ||x||^2."""
    x = torch.randn(numel, generator=torch.Generator().manual_seed(seed))
    k = max(1, round(ratio * numel))
    left = (x - sent(f"topk:{ratio!r}", x)).double().square().sum()
    assert left <= (1 - k / numel) * x.double().square().sum() * (1 + 1e-12)


def test_e1_is_attained() -> None:
    x = torch.where(torch.arange(1000) % 3 == 0, 2.0, -2.0)
    left = (x - sent("topk:0.25", x)).square().sum()
    assert left == 0.75 * x.square().sum()


def test_chunks_keep_as_many_each(kernels: Kernels) -> None:
    x = torch.arange(1.0, 2102.0)  # without chunks only the end would be kept
    own = sent("topk:0.1,chunk=100", x, kernels)
    kept = [int((part != 0).sum()) for part in own.split(100)]
    assert kept == [10] * 21 + [1]
    assert (own[90:100] == x[90:100]).all()
    own = sent("topk:k=3,chunk=100", x, kernels)
    assert [int((part != 0).sum()) for part in own.split(100)] == [3] * 21 + [1]


def test_k_counts_elements(kernels: Kernels) -> None:
    layout = Layout((Spec("a", (40,)), Spec("e", (0,)), Spec("b", (7,))), (1, 41, 44))
    x = torch.randn(60)
    own = pack("topk:k=7", layout, [x], kernels=kernels).own(0, x)
    assert int((own[1:41] != 0).sum()) == 7
    assert same_bits(own[44:51], x[44:51])


def test_values_behind_fp16_are_rounded_places_are_not(kernels: Kernels) -> None:
    x = torch.randn(5000)
    exact = sent("topk:0.02", x, kernels)
    for text, dtype in (("fp16", torch.float16), ("bf16", torch.bfloat16)):
        assert same_bits(sent(f"topk:0.02 >> {text}", x, kernels), exact.to(dtype).float())


@pytest.mark.parametrize("inner", ["terngrad:scales=own", "ternary:block=32,scales=own"])
def test_own_scale_coders_may_follow(kernels: Kernels, inner: str) -> None:
    xs = [torch.randn(2000) for _ in range(3)]
    packed = pack(f"topk:0.1 >> {inner}", one_tensor(2000), xs, kernels=kernels)
    mean = torch.stack([packed.own(rank, xs[0]) for rank in range(3)]).mean(0)
    torch.testing.assert_close(packed.mean(xs[0]), mean)
    assert 0 < int((packed.own(0, xs[0]) != 0).sum()) <= 200


@pytest.mark.parametrize("text", ["topk:0.03", "topk:0.03,chunk=256 >> fp16", "topk:0.5", "topk:k=1"])
@pytest.mark.parametrize("world", [1, 2, 3, 4])
def test_the_mean_is_the_mean_of_what_was_sent(kernels: Kernels, text: str, world: int) -> None:
    xs = [torch.randn(3001, generator=torch.Generator().manual_seed(rank)) for rank in range(world)]
    packed = pack(text, one_tensor(3001), xs, kernels=kernels)
    total = torch.zeros(3001)
    for rank in range(world):
        total += packed.own(rank, xs[0]) * torch.tensor(1 / world)
    assert same_bits(packed.mean(xs[0]), total)


@pytest.mark.parametrize("world", [1, 3, 7])
def test_values_travel_undivided(kernels: Kernels, world: int) -> None:
    """Dividing by N on the wire would round: what is taken from the memory is to the bit what was sent."""
    xs = [torch.randn(3001, generator=torch.Generator().manual_seed(rank)) for rank in range(world)]
    packed = pack("topk:0.3", one_tensor(3001), xs, kernels=kernels)
    for rank, x in enumerate(xs):
        assert same_bits(packed.own(rank, x), expected_topk(x, 900))


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_non_finite_numbers_are_always_sent(kernels: Kernels, bad: float) -> None:
    xs = [torch.randn(3000) * 1e30 for _ in range(3)]
    xs[1][1234] = bad
    for text in ("topk:k=1", "topk:0.01 >> bf16", "topk:0.001,chunk=1000"):
        mean = pack(text, one_tensor(3000), xs, kernels=kernels).mean(xs[0])
        assert not torch.isfinite(mean[1234])


def index_bits(numel: int, k: int) -> float:
    """Bits an index takes on the wire, by the size of a payload."""
    packer = bound(f"topk:k={k}", one_tensor(numel)).packer
    return (8 * payload_bytes(packer) - 32 * k) / k


def test_indices_are_packed() -> None:
    """Never more than ceil(log2 n) bits or n bits in all; near log2(n/k) + 2 for sparse choices."""
    for numel, k in (
        (6_553_600, 65_536),
        (1_000_000, 1000),
        (4096, 41),
        (1000, 500),
        (1 << 20, 1),
        (100, 100),
    ):
        padding = 8 * 24 / k
        assert index_bits(numel, k) <= min((numel - 1).bit_length(), numel / k) + padding
        assert index_bits(numel, k) <= math.log2(numel / k) + 2.6 + padding
    assert index_bits(6_553_600, 65_536) < 8.6
    assert best_low_bits(100, 60) == 0


def test_wire_bits_of_one_percent() -> None:
    """The paper's top-k takes 64 bits an entry; ours 32 + 8.6."""
    packer = bound("topk:0.01", one_tensor(6_553_600)).packer
    assert 8 * payload_bytes(packer) / 6_553_600 == pytest.approx(0.4056, abs=1e-4)
    packer = bound("topk:0.01 >> fp16", one_tensor(6_553_600)).packer
    assert 8 * payload_bytes(packer) / 6_553_600 == pytest.approx(0.2456, abs=1e-4)


def test_payloads_are_gathered() -> None:
    codec = tw.parse("topk:0.01")
    assert (codec.merge, codec.feedback) == (Merge.GATHER, "residual")
    assert not codec.near_lossless
    with pytest.raises(PlanError, match='use route "allgather"'):
        Simulation("topk:0.1", specs_of({"w": 500}), 2, route="allreduce").plan  # noqa: B018


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("topk:0", "topk: ratio=0, the part that is kept, must be above 0 and at most 1"),
        ("topk:1.5", "topk: ratio=1.5, the part"),
        ("topk:nan", "topk: ratio=nan, the part"),
        ("topk:many", 'ratio="many" does not fit: a part of the elements'),
        ("topk:k=-1", "k=-1 and chunk=1048576 must not be negative"),
        ("topk:chunk=-5", "must not be negative"),
        ("topk:k=65,chunk=64", "topk: k=65 is more than chunk=64 elements; make k smaller"),
        ("topk:0.5,k=3", "topk: ratio=0.5 and k=3 both say how much is kept; give one"),
        ("topk:0.1 >> ternary", "topk cannot feed terngrad with shared scales"),
        ("topk:0.1 >> terngrad", "put scales=own"),
        ("topk:0.1 >> clip >> dense", "nothing but a coder can follow"),
    ],
)
def test_bad_texts(text: str, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        tw.parse(text)
    assert sentence in str(caught.value)


def test_k_larger_than_a_tensor() -> None:
    specs = specs_of({"large": 500, "small": (3, 5)})
    with pytest.raises(PlanError) as caught:
        Simulation("topk:k=100", specs, 2).plan  # noqa: B018
    told = str(caught.value)
    assert "k=100 is more than the 15 elements of small" in told
    assert '{"small": "dense"' in told
    assert Simulation({"small": "dense", "*": "topk:k=100"}, specs, 2).plan.entries
    with pytest.raises(PlanError, match="more than 2\\^31 - 1"):
        TopK(chunk=0).kept(Spec("huge", (1 << 16, 1 << 16)))


# E3: f_i(x) = (a_i . x)^2 + |x|^2 / 4. Each worker's own largest coordinate points away from the minimum.
SLOPES = torch.tensor([[-3.0, 2.0, 2.0], [2.0, -3.0, 2.0], [2.0, 2.0, -3.0]])
THREE = specs_of({"x": 3})


def descend(feedback: str, steps: int) -> list[Tensor]:
    simulation = Simulation("topk:k=1", THREE, 3, feedback=feedback)

    def work(group: ThreadGroup) -> Tensor:
        engine, slope, x = simulation.engine(group), SLOPES[group.rank], torch.ones(3)
        for _ in range(steps):
            gradient = 2 * (slope @ x) * slope + x / 2
            x = x - 0.05 * simulation.step(engine, {"x": gradient})["x"]
        return x

    return run_ranks(3, work)


def test_e3_without_feedback_it_diverges_with_it_converges() -> None:
    assert descend("none", 350)[0].norm() > 1e12
    ends = descend("residual", 350)
    assert ends[0].norm() < 1e-3
    assert all(same_bits(end, ends[0]) for end in ends)


def test_resuming_and_buckets_change_no_bits() -> None:
    specs = specs_of({"a": (40, 30), "b": 77, "c": (5, 5, 5)})
    simulation = Simulation("topk:0.05 >> bf16", specs, 3)
    expected = simulation.run(gaussian(specs), steps=4)
    assert_ranks_agree(expected)
    other = simulation.but(buckets=(("c",), ("b", "a"))).run(gaussian(specs), steps=4)

    def names(means: list[Gradients]) -> list[Tensor]:
        return [mean[name] for mean in means for name in ("a", "b", "c")]

    assert all(same_bits(a, b) for a, b in zip(names(expected[0]), names(other[0]), strict=True))
