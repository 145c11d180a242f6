"""Plans: what every tensor gets, exact bytes, and a digest that tells plans apart."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import nn

from packing import CPU
from simulation import specs_of
from thinwire.codecs.codec import CodecLike
from thinwire.codecs.coder import Context
from thinwire.errors import PlanError
from thinwire.kernels import pick
from thinwire.plans.plan import Plan, mean_bytes, warn_idle
from thinwire.plans.policy import Model, Policy
from thinwire.tensors import Layout, Spec

SPECS = specs_of({"fc1.weight": (50, 40), "fc1.bias": 50, "fc2.weight": (40, 50), "fc2.bias": 40})
MODEL = Model(SPECS, last=frozenset({"fc2.weight", "fc2.bias"}))


def plan(
    codec: CodecLike | Mapping[str, CodecLike] = "terngrad",
    world: int = 4,
    model: Model = MODEL,
    **options: Any,
) -> Plan:
    return Plan.of(Policy.of(codec), model, world, **options)


def test_what_every_tensor_gets() -> None:
    entries = {entry.spec.name: entry for entry in plan().entries}
    assert [entries["fc1.weight"].codec.name, entries["fc1.weight"].route] == ["terngrad", "sharded"]
    assert [entries["fc2.weight"].codec.name, entries["fc2.weight"].reason] == ["dense", "last layer"]
    assert {entry.feedback for entry in entries.values()} == {"none"}


def test_tensors_beside_a_compressed_codec_are_added_in_rank_order() -> None:
    """A ring all-reduce gives other bits when DDP moves a tensor to another bucket."""
    assert {entry.route for entry in plan("terngrad").entries} == {"sharded"}
    assert {entry.route for entry in plan("dense").entries} == {"allreduce"}
    mixed = {entry.spec.name: entry.route for entry in plan("terngrad:scales=own").entries}
    assert mixed["fc1.weight"] == "allgather"
    assert mixed["fc1.bias"] == "sharded"


def test_a_route_can_be_chosen() -> None:
    assert {e.route for e in plan("terngrad", route="allgather").entries if e.codec.name == "terngrad"} == {
        "allgather"
    }
    assert {e.route for e in plan("dense", route="sharded").entries} == {"sharded"}
    with pytest.raises(PlanError, match='route "allreduce" takes only sum: use route "sharded"'):
        plan("terngrad", route="allreduce")
    with pytest.raises(PlanError, match='there is no route "pigeon"'):
        plan("terngrad", route="pigeon")


def test_a_memory_can_be_chosen_and_dense_tensors_need_none() -> None:
    feedbacks = {entry.spec.name: entry.feedback for entry in plan("terngrad", feedback="residual").entries}
    assert feedbacks == {
        "fc1.weight": "residual",
        "fc1.bias": "none",
        "fc2.weight": "none",
        "fc2.bias": "none",
    }
    with pytest.raises(PlanError, match='there is no feedback "elephant": known are none, residual'):
        plan(feedback="elephant")


def test_a_model_without_parameters_is_refused() -> None:
    for module in (nn.ReLU(), nn.Linear(2, 2).requires_grad_(False)):
        with pytest.raises(PlanError, match="no trainable parameters: there is nothing to send"):
            plan(model=Model.of(module))


@pytest.mark.parametrize("dtype", [torch.complex64, torch.int64, torch.float8_e4m3fn])
def test_strange_dtypes_are_refused(dtype: torch.dtype) -> None:
    with pytest.raises(PlanError, match=f"odd is {dtype}: thinwire sends float32, .*; freeze it"):
        plan(model=Model((Spec("odd", (4,), dtype),)))


def test_worlds_a_codec_cannot_serve_are_refused() -> None:
    with pytest.raises(PlanError, match="terngrad adds up at most 32767 workers, not 40000"):
        plan(world=40000)
    plan("dense", world=40000)


def test_bytes_of_a_known_model() -> None:
    """fc1.weight: 13 granules, 4 shards of 4 x 32 bytes out, 2 packs of 128 bytes back; the rest is dense."""
    dense_granules = -(-(50 + 2000 + 40) * 4 // 8)
    shard = -(-dense_granules // 4) * 8
    ternary = 3 * 4 * 32 + 3 * 2 * 128
    assert plan().step_bytes() == 3 * 4 + ternary + 3 * shard + 3 * shard
    assert plan("dense").step_bytes() == 2 * 3 * 4090 * 4 // 4
    own = plan("terngrad:scales=own").step_bytes()  # 13 x 32 bytes and a scale, padded to 8, to 3 peers
    assert own == 3 * 424 + 3 * shard + 3 * shard
    assert plan("bf16").step_bytes() == 2 * 3 * 8184 // 4  # 8180 bytes in whole granules of 8
    assert plan().dense_bytes == 2 * 3 * 4090 * 4 // 4
    assert plan(world=1).step_bytes() == plan(world=1).dense_bytes == 0


def test_bytes_depend_on_the_buckets() -> None:
    """Messages are padded to whole shards, so two buckets send no fewer bytes than one."""
    buckets = [Layout.packed(SPECS[:2]), Layout.packed(SPECS[2:])]
    assert plan().step_bytes(buckets) >= plan().step_bytes()
    assert plan().step_bytes([Layout.packed(SPECS)]) == plan().step_bytes()


def test_the_ratios_of_issue_2() -> None:
    """At 2, 4, 8 workers at most 1/15, 1/12, 1/10 of the bytes of fp32 ring all-reduce."""
    model = Model(specs_of({"w": (2560, 2560)}))
    for world, ratio in ((2, 15), (4, 12), (8, 10)):
        large = plan(world=world, model=model)
        assert large.dense_bytes / large.step_bytes() >= ratio


@pytest.mark.parametrize("codec", ["dense", "terngrad", "bf16"])
def test_tensors_of_several_dtypes_are_counted_apart(codec: str) -> None:
    """A model in one bucket: float64 tensors must not be counted as float32."""
    wide = Spec("wide", (1000,), torch.float64)
    narrow = Spec("narrow", (1000,), torch.float32)
    alone = [Plan.of(Policy.of(codec, ()), Model((spec,)), 2).step_bytes() for spec in (wide, narrow)]
    for order in ((wide, narrow), (narrow, wide)):
        assert Plan.of(Policy.of(codec, ()), Model(order), 2).step_bytes() == sum(alone)


def test_lanes_of_a_bucket() -> None:
    """One lane per codec, memory and route, with its tensors where they lie in the bucket."""
    place = Context(4, 0, CPU, pick(CPU))
    lanes = plan().lanes(Layout.packed(SPECS), place)
    assert [(str(lane.codec), lane.layout.names, lane.layout.offsets) for lane in lanes] == [
        ("terngrad", ("fc1.weight",), (0,)),
        ("dense", ("fc1.bias", "fc2.weight", "fc2.bias"), (2000, 2050, 4050)),
    ]


def test_codecs_that_differ_in_the_last_digit_get_lanes_of_their_own() -> None:
    codecs = {"fc1.weight": "terngrad:clip=2.5000001", "fc2.weight": "terngrad:clip=2.5000002"}
    lanes = plan(codecs).lanes(Layout.packed(SPECS), Context(4, 0, CPU, pick(CPU)))
    assert [lane.layout.names for lane in lanes] == [
        ("fc1.weight",),
        ("fc1.bias", "fc2.bias"),
        ("fc2.weight",),
    ]


def test_digests_are_equal_only_for_equal_plans() -> None:
    renamed = Model((Spec("other", (50, 40)), *SPECS[1:]))
    plans = [
        plan(),
        plan("terngrad:clip=2.5000001"),
        plan("terngrad:wire=2bit"),
        plan("dense"),
        plan(world=5),
        plan(feedback="residual"),
        plan(route="allgather"),
        plan(model=Model(SPECS)),
        plan(model=renamed),
        plan(model=Model(SPECS[::-1])),
        plan(model=Model(specs_of({spec.name: spec.shape for spec in SPECS}, torch.bfloat16))),
    ]
    for a, b in itertools.combinations(plans, 2):
        assert a.digest != b.digest, f"{a}\n{b}"
    assert plan().digest == plan(" terngrad : clip = 2.50").digest
    assert all(len(p.digest) == 32 for p in plans)


def test_plans_can_be_joined() -> None:
    """A hook without a model plans its tensors as it meets them."""
    whole = plan("dense", model=Model(SPECS))
    joined = plan("dense", model=Model(SPECS[:2])).joined(plan("dense", model=Model(SPECS[2:])))
    assert joined.digest == whole.digest
    assert joined.step_bytes() == whole.step_bytes()


def test_a_plan_can_be_read() -> None:
    text = str(plan())
    assert "fc1.weight" in text
    assert "(last layer)" in text
    assert text.splitlines()[-1].startswith(f"{plan().step_bytes():,} bytes a step from each of 4 workers")
    assert "fewer than fp32 all-reduce" in text
    assert "fewer" not in str(plan(world=1))


@pytest.mark.parametrize(
    "codec", ["terngrad", "topk:0.1", "powersgd:2", "fp16", "gradiveq:4,slice=16,layers=all"]
)
@pytest.mark.parametrize("world", [1, 4])
def test_bytes_of_tensors_are_together_those_of_a_step(codec: str, world: int) -> None:
    made = plan(codec, world)
    assert sum(made.tensor_bytes().values()) == round(mean_bytes(made.stretches()))


def test_a_matrix_sent_as_two_thin_ones_counts_by_its_sides() -> None:
    """Not by its elements: rank x (rows + columns) numbers travel."""
    model = Model(specs_of({"square": (100, 100), "long": (10, 1000)}))
    made = Plan.of(Policy.of("powersgd:1", ()), model, 2).tensor_bytes()
    assert made["long"] / made["square"] == pytest.approx(1010 / 200, rel=0.01)


def test_a_dense_tensor_that_takes_most_bytes_is_pointed_at() -> None:
    made = plan()
    hint = made.hint(made.tensor_bytes())
    assert hint is not None
    assert hint.startswith("87% of the bytes is one tensor that stays dense, fc2.weight (last layer)")
    assert hint in str(made)
    told = plan({"fc2.weight": "terngrad", "*": "terngrad"})
    assert told.hint(told.tensor_bytes()) is None
    assert plan("dense").hint(plan("dense").tensor_bytes()) is None
    assert "14%" not in str(made)
    level = made.tensor_bytes()["fc2.weight"] / made.step_bytes()
    assert f"{level:.0%}  (last layer)" in str(made)


def test_plans_that_compress_nothing_say_so() -> None:
    mlp = Model.of(nn.Sequential(nn.Linear(64, 64), nn.Linear(64, 64), nn.Linear(64, 10)))
    policy = Policy.of("gradiveq:8")
    with pytest.warns(
        UserWarning, match=r"gradiveq:8 compresses nothing .* fully connected \(layers=all"
    ) as told:
        warn_idle(Plan.of(policy, mlp, 2), policy)
    assert len(told) == 1
    tiny = Model.of(nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2)))
    with pytest.warns(UserWarning, match=r"terngrad compresses nothing .*fewer than 1024 elements: 2"):
        warn_idle(Plan.of(Policy.of("terngrad"), tiny, 2), Policy.of("terngrad"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for text, model in (("terngrad", mlp), ("dense", tiny), ("fp16", tiny)):
            warn_idle(Plan.of(Policy.of(text), model, 2), Policy.of(text))
