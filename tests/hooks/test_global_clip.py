"""momentum:clip=C,norm=model is DGC's clipping: by the norm of the whole gradient, whatever the buckets."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from simulation import same_bits
from thinwire.errors import CodecError, PlanError
from thinwire.feedback.table import make_feedback
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.hooks.compressor import Compressor
from thinwire.plans.policy import Policy
from thinwire.tensors import Layout, Spec

CPU = torch.device("cpu")
WORLD, STEPS, CLIP, KEEP = 2, 4, 3.0, 0.1
MEMORY = f"momentum:0.8,clip={CLIP},norm=model"
BUCKETS = {"one": ((0, 1, 2),), "two": ((2,), (0, 1)), "three": ((2,), (1,), (0,))}


def net() -> nn.Module:
    torch.manual_seed(0)
    layers = nn.Linear(40, 30, bias=False), nn.Linear(30, 20, bias=False), nn.Linear(20, 10, bias=False)
    return nn.Sequential(*layers)


def gradient(rank: int, step: int) -> list[Tensor]:
    """Layer by layer of another size; some steps are longer than the limit, some are not."""
    generator = torch.Generator().manual_seed(100 * step + rank)
    sizes = (1.0, 0.1, 3.0)
    return [
        (0.02 if step % 2 else 1.0) * size * torch.randn(p.shape, generator=generator)
        for p, size in zip(net().parameters(), sizes, strict=True)
    ]


def run(buckets: Sequence[Sequence[int]], scale: float = 1.0, place: int = 0) -> list[list[Tensor]]:
    """The means of all steps, by step and layer, of rank 0; buckets arrive one after the other."""

    def work(group: ThreadGroup) -> list[list[Tensor]]:
        module = net()
        parameters: list[Tensor] = list(module.parameters())
        means = []
        policy = Policy.of(f"dgc:{KEEP},warmup=0,chunk=tensor", keep_dense=())
        made = Compressor(
            policy, group, CPU, module, feedback=MEMORY, loss_scale=lambda: scale, check_every=0
        )
        made.check_optimizer(torch.optim.SGD(parameters, lr=0.1))
        for step in range(STEPS):
            own, buffers = gradient(group.rank, step), {}
            for k, members in enumerate(buckets):
                flat = torch.cat([scale * own[i].flatten() for i in members])
                buffer = torch.zeros(flat.numel() + place)[place:].copy_(flat)
                buffers[k] = buffer
                made.queue.exchange(
                    buffer, [parameters[i] for i in members], k == len(buckets) - 1, lambda: None
                )
            made.wait()
            parts: dict[int, Tensor] = {}
            for k, members in enumerate(buckets):
                split = buffers[k].split([own[i].numel() for i in members])
                parts |= {i: part / scale for i, part in zip(members, split, strict=True)}
            means.append([parts[i] for i in range(3)])
        made.close()
        return means

    return run_ranks(WORLD, work)[0]


def lin() -> list[list[np.ndarray]]:
    """DGC from its paper, in numpy: clip by the global norm at N^-1/2 of the threshold, then as ever."""
    u = [[np.zeros(p.numel()) for p in net().parameters()] for _ in range(WORLD)]
    v = [[np.zeros(p.numel()) for p in net().parameters()] for _ in range(WORLD)]
    means = []
    for step in range(STEPS):
        sent = [[np.zeros(p.numel()) for p in net().parameters()] for _ in range(WORLD)]
        for rank in range(WORLD):
            g = [layer.flatten().double().numpy() for layer in gradient(rank, step)]
            norm = np.sqrt(sum((layer**2).sum() for layer in g))
            g = [layer * min(1.0, CLIP / np.sqrt(WORLD) / norm) for layer in g]
            for layer in range(3):
                u[rank][layer] = 0.8 * u[rank][layer] + g[layer]
                v[rank][layer] += u[rank][layer]
                count = round(KEEP * g[layer].size)
                chosen = np.argsort(-np.abs(v[rank][layer]))[:count]
                sent[rank][layer][chosen] = v[rank][layer][chosen]
                u[rank][layer][chosen] = v[rank][layer][chosen] = 0.0
        means.append([(sent[0][layer] + sent[1][layer]) / 2 for layer in range(3)])
    return means


@pytest.mark.parametrize("scale", [1.0, 1024.0])
@pytest.mark.parametrize("buckets", BUCKETS)
def test_it_is_the_papers_clipping_however_buckets_are_cut(buckets: str, scale: float) -> None:
    for found, expected in zip(run(BUCKETS[buckets], scale), lin(), strict=True):
        for own, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(own.numpy(), theirs, rtol=1e-4, atol=1e-6)


def test_bits_depend_on_the_numbers_alone() -> None:
    expected = run(BUCKETS["one"])
    for place, buckets in ((0, "two"), (3, "one"), (7, "three")):
        found = run(BUCKETS[buckets], place=place)
        for own, other in zip(found, expected, strict=True):
            assert all(same_bits(a, b) for a, b in zip(own, other, strict=True))


def test_a_backward_pass_that_was_broken_off_leaves_nothing() -> None:
    """The bucket that is held twice is that of the later pass."""
    module = net()
    parameters: list[Tensor] = list(module.parameters())
    policy = Policy.of(f"dgc:{KEEP},warmup=0", keep_dense=())
    made = Compressor(policy, ThreadGroup.make(1)[0], CPU, module, feedback=MEMORY)
    made.check_optimizer(torch.optim.SGD(parameters, lr=0.1))
    done: list[str] = []
    flats = [torch.ones(p.numel()) for p in parameters]
    made.queue.exchange(flats[2].clone(), parameters[2:], False, lambda: done.append("broken off"))
    made.queue.exchange(flats[2], parameters[2:], False, lambda: done.append("first"))
    made.queue.exchange(torch.cat(flats[:2]), parameters[:2], True, lambda: done.append("last"))
    made.wait()
    assert done == ["first", "last"]
    made.close()


def test_it_needs_a_clip_and_the_norm() -> None:
    with pytest.raises(CodecError, match="norm=model says what clip= goes by: give clip"):
        make_feedback("momentum:norm=model")
    with pytest.raises(PlanError, match="needs the norm of the whole gradient"):
        make_feedback(MEMORY).before(torch.ones(3), Layout.packed([Spec("a", (3,))]).pieces(), 1.0)
