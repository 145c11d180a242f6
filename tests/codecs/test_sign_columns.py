"""sign:block=column: two values for every column, as 1-bit SGD has it, against an oracle in plain numpy."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor

from packing import bound, pack, payload_bytes
from simulation import Gradients, Simulation, specs_of
from thinwire.exchange.engine import Bucket
from thinwire.exchange.state import local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import Kernels
from thinwire.tensors import Layout, Spec

Method = Callable[[np.ndarray], np.ndarray]
SHAPES = {"fc": (70, 33), "conv": (20, 6, 3, 3), "bias": (45,), "scalar": ()}
LAYOUT = Layout.packed(Spec(name, shape) for name, shape in SHAPES.items())
COLUMNS = 33 + 6 * 3 * 3 + 1 + 1  # of a vector there is one


def gradients(rank: int) -> Tensor:
    return torch.randn(LAYOUT.numel, generator=torch.Generator().manual_seed(rank)) + 0.2


def seide(p: np.ndarray) -> np.ndarray:
    """1-bit SGD: bit = p >= 0; what stands for a bit is the mean of its entries in this column."""
    sent = np.empty_like(p)
    for j in range(p.shape[1]):
        for mask in (p[:, j] >= 0, p[:, j] < 0):
            if mask.any():
                sent[mask, j] = p[mask, j].mean()
    return sent


def scaled(p: np.ndarray) -> np.ndarray:
    return np.where(p >= 0, 1.0, -1.0) * np.abs(p).mean(axis=0, keepdims=True)


def by_matrix(x: Tensor, method: Method = seide) -> np.ndarray:
    """Every tensor as a matrix, dimension 0 times the rest, of a vector one column."""
    parts = []
    for spec, piece in zip(LAYOUT.specs, LAYOUT.slices, strict=True):
        rows = spec.shape[0] if len(spec.shape) > 1 else spec.numel
        parts.append(method(x[piece].numpy().astype(np.float64).reshape(rows, -1)).ravel())
    return np.concatenate(parts)


@pytest.mark.parametrize(("values", "method"), [("mean", seide), ("scaled", scaled)])
def test_it_is_one_bit_sgd_column_by_column(kernels: Kernels, values: str, method: Method) -> None:
    xs = [gradients(rank) for rank in range(3)]
    xs[1][5], xs[1][6] = 0.0, -0.0  # both count as not negative
    packed = pack(f"sign:block=column,values={values}", LAYOUT, xs, kernels=kernels)
    expected = [by_matrix(x, method) for x in xs]
    for rank, x in enumerate(xs):
        np.testing.assert_allclose(packed.own(rank, x).numpy(), expected[rank], rtol=1e-6)
    np.testing.assert_allclose(packed.mean(xs[0]).numpy(), np.mean(expected, axis=0), rtol=1e-5, atol=1e-6)


def test_with_its_residual_it_is_the_published_loop() -> None:
    """p = g + e; send; e = p - sent: three steps of two workers, whole exchanges."""
    simulation = Simulation("sign:block=column", specs_of(SHAPES), 2)
    (layout,) = simulation.layouts

    def work(group: ThreadGroup) -> tuple[list[Tensor], Gradients]:
        engine, means = simulation.engine(group), []
        for step in range(3):
            buffer = gradients(10 * step + group.rank)
            engine.exchange(Bucket(buffer, layout))
            engine.end_step()
            means.append(buffer)
        return means, local_state(engine)["feedback"]["residual"]["residual"]

    (means, held), _ = run_ranks(2, work)
    e = [np.zeros(LAYOUT.numel), np.zeros(LAYOUT.numel)]
    for step in range(3):
        p = [gradients(10 * step + rank).double().numpy() + e[rank] for rank in range(2)]
        sent = [by_matrix(torch.from_numpy(own)) for own in p]
        e = [own - gone for own, gone in zip(p, sent, strict=True)]
        np.testing.assert_allclose(means[step].numpy(), (sent[0] + sent[1]) / 2, rtol=2e-4, atol=2e-5)
    kept = np.concatenate([held[name].flatten().numpy() for name in SHAPES])
    np.testing.assert_allclose(kept, e[0], rtol=2e-4, atol=2e-5)


@pytest.mark.parametrize(("values", "floats"), [("mean", 2), ("scaled", 1)])
def test_bits_on_the_wire(values: str, floats: int) -> None:
    """A bit an element in granules of 1024, and two floats (or one) a column; whole multiples of 8 bytes."""
    granules = sum(-(-spec.numel // 1024) for spec in LAYOUT.specs)
    nbytes = granules * 128 + 4 * floats * COLUMNS
    found = payload_bytes(bound(f"sign:block=column,values={values}", LAYOUT, 4).packer)
    assert found == -(-nbytes // 8) * 8


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("values", ["mean", "scaled"])
def test_what_is_not_finite_stays_in_its_column(kernels: Kernels, values: str, number: float) -> None:
    xs = [gradients(rank) for rank in range(3)]
    xs[1][33 * 4 + 7] = number
    packed = pack(f"sign:block=column,values={values}", LAYOUT, xs, kernels=kernels)
    for found in (packed.mean(xs[0]), packed.own(1, xs[0])):
        broken = (~torch.isfinite(found)).nonzero().flatten()
        assert 33 * 4 + 7 in broken
        assert all(place < 70 * 33 and place % 33 == 7 for place in broken.tolist())
    assert torch.isfinite(packed.own(0, xs[0])).all()


def test_a_column_errs_less_than_a_layer() -> None:
    """More values cannot err more: the means of a column are the best two values for it."""
    x = gradients(0) * (1 + torch.arange(LAYOUT.numel) % 33)
    errors = [(pack(f"sign:block={b}", LAYOUT, [x]).own(0, x) - x).norm() for b in ("column", "layer")]
    assert errors[0] < 0.9 * errors[1]
