"""Routes: which codecs they take, and that they send exactly what they say."""

from __future__ import annotations

import pytest
import torch

import thinwire as tw
from packing import CPU
from simulation import Simulation, Source, assert_ranks_agree, assert_same, gaussian, specs_of
from thinwire.codecs.coder import Context
from thinwire.errors import PlanError
from thinwire.exchange.engine import Bucket
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.kernels import pick
from thinwire.plans import lane as lane_module
from thinwire.plans.lane import agree_bytes, step_bytes
from thinwire.routes import ROUTES, default_route_name, route_named
from thinwire.tensors import Layout

SPECS = specs_of({"a": 1009, "b": 33, "empty": 0, "c": (7, 9), "one": 1})
WORLDS = (1, 2, 3, 4, 5, 8)
UNCUT = {("dense", "allreduce")}  # it adds as DDP does
LEGAL = [
    ("dense", "allreduce"),
    ("dense", "sharded"),
    ("fp16", "allreduce"),
    ("bf16", "sharded"),
    ("terngrad", "sharded"),
    ("terngrad", "allgather"),
    ("terngrad:scales=own", "allgather"),
    ("qsgd:4,scales=own", "allgather"),
    ("topk:0.1,chunk=64 >> rangefloat:8", "allgather"),
    ("sign:block=96", "allgather"),
    ("rangefloat:8,block=64", "allgather"),
    ("fft:0.5,chunk=64", "allgather"),
    ("clip >> ternary:block=32", "sharded"),
    ("clip >> dense", "allreduce"),
]


@pytest.mark.parametrize(
    ("text", "route", "sentence"),
    [
        ("terngrad", "allreduce", 'route "allreduce" takes only sum: use route "sharded"'),
        ("terngrad:scales=own", "allreduce", 'route "allreduce" takes only sum: use route "allgather"'),
        ("sign:block=column", "sharded", "sign:block=column cannot be encoded again by the owner of a share"),
        ("dense", "allgather", 'dense payloads merge by sum, and route "allgather" takes only gather, int'),
        ("bf16", "allgather", 'use route "allreduce"'),
    ],
)
def test_illegal_pairs_are_refused(text: str, route: str, sentence: str) -> None:
    with pytest.raises(PlanError) as caught:
        route_named(route).check(tw.parse(text))
    assert sentence in str(caught.value)
    with pytest.raises(PlanError):
        Simulation(text, SPECS, 2, route=route).plan  # noqa: B018


def test_unknown_routes_are_refused() -> None:
    with pytest.raises(
        PlanError, match='there is no route "pigeon": known are allreduce, allgather, sharded'
    ):
        route_named("pigeon")


@pytest.mark.parametrize(
    "text", ["dense", "fp16", "bf16", "terngrad", "terngrad:scales=own", "clip >> ternary"]
)
def test_the_default_route_is_legal(text: str) -> None:
    codec = tw.parse(text)
    route_named(default_route_name(codec)).check(codec)


def test_every_codec_has_a_route() -> None:
    assert {route.name for route in ROUTES.values()} == set(ROUTES)
    assert set().union(*(route.takes for route in ROUTES.values())) == set(tw.Merge)


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(("text", "route"), LEGAL)
@pytest.mark.parametrize("part_numel", [1 << 21, 300])
def test_sent_bytes_are_the_metered_bytes(
    text: str, route: str, world: int, part_numel: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exactly, in one part or in several that follow each other."""
    monkeypatch.setattr(lane_module, "PART_NUMEL", part_numel)
    simulation = Simulation(text, SPECS, world, route=route)
    source = gaussian(SPECS)

    def work(group: ThreadGroup) -> int:
        engine = simulation.engine(group)
        simulation.step(engine, source(0, group.rank))
        before = engine.group.total_bytes
        simulation.step(engine, source(1, group.rank))
        return engine.group.total_bytes - before

    lanes = simulation.plan.lanes(Layout.packed(SPECS), Context(world, 0, CPU, pick(CPU)))
    assert len(lanes) == 1
    cut = part_numel == 300 and (text, route) not in UNCUT
    assert (len(lanes[0].parts) > 1) == cut
    planned = agree_bytes(lanes) + lanes[0].sent_bytes
    assert planned == step_bytes(lanes) == simulation.plan.step_bytes()
    assert run_ranks(world, work) == [planned] * world
    assert (planned > 0) == (world > 1)


@pytest.mark.parametrize("world", [1, 3, 4])
@pytest.mark.parametrize(("text", "route"), LEGAL)
def test_parts_change_no_bits(text: str, route: str, world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    simulation = Simulation({"b": "dense", "*": text}, SPECS, world, route=route)
    whole = simulation.run(gaussian(SPECS), steps=2)
    assert_ranks_agree(whole)
    for part_numel in (100, 333):
        monkeypatch.setattr(lane_module, "PART_NUMEL", part_numel)
        parts = simulation.run(gaussian(SPECS), steps=2)
        assert_ranks_agree(parts)
        for a, b in zip(whole[0], parts[0], strict=True):
            assert_same(a, b)


def test_integer_sums_are_the_same_by_any_route() -> None:
    """Payloads under a shared scale add exactly, so it does not matter where they are added."""
    source = gaussian(SPECS)
    for text in ("terngrad", "terngrad:block=64,wire=2bit"):
        results = [Simulation(text, SPECS, 5, route=r).run(source)[0][0] for r in ("sharded", "allgather")]
        assert_same(*results)


def test_gradients_between_the_tensors_of_a_lane_are_not_touched() -> None:
    """Two lanes interleaved in one bucket: each writes only its own tensors."""
    simulation = Simulation({"b": "bf16", "c": "bf16", "*": "terngrad"}, SPECS, 3)
    alone = {
        name: Simulation(text, tuple(s for s in SPECS if s.name in names), 3, route="sharded").run(
            gaussian_of(names)
        )
        for text, names in (("bf16", ("b", "c")), ("terngrad", ("a", "empty", "one")))
        for name in names
    }
    mixed = simulation.but(route="sharded").run(gaussian(SPECS))[0][0]
    for name, runs in alone.items():
        assert torch.equal(mixed[name], runs[0][0][name])


def gaussian_of(names: tuple[str, ...]) -> Source:
    """The gradients of `gaussian(SPECS)`, of some of the tensors only."""
    source = gaussian(SPECS)
    return lambda step, rank: {name: source(step, rank)[name] for name in names}


def test_buffers_in_the_middle_of_larger_storage() -> None:
    """Buckets are views that may start at any element."""
    simulation = Simulation("terngrad", SPECS, 2)
    expected = simulation.run(gaussian(SPECS))[0][0]
    layout = Layout.packed(SPECS)

    def work(group: ThreadGroup) -> torch.Tensor:
        gradients = gaussian(SPECS)(0, group.rank)
        storage = torch.full((layout.numel + 8,), 99.0)
        buffer = storage[3 : 3 + layout.numel]
        buffer.copy_(torch.cat([gradients[name].flatten() for name in layout.names]))
        simulation.engine(group).exchange(Bucket(buffer, layout))
        assert (storage[:3] == 99).all()
        assert (storage[-5:] == 99).all()
        return buffer

    for buffer in run_ranks(2, work):
        assert torch.equal(buffer, torch.cat([expected[name].flatten() for name in layout.names]))
