"""DDP for real: every feature and every codec on processes over gloo."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import features
import pytest
import torch
import torch.distributed as dist
from features import FEATURES
from launch import NewTeam, Teams
from torch import Tensor
from training import batch, fit, loss_of, mlp, parts_of, wrap

import thinwire as tw
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.state import local_state
from thinwire.groups.thread import ThreadGroup, run_ranks
from thinwire.tensors import Layout, Spec

Feature = Callable[..., Tensor]

# Everything is compressed: no tensor stays dense by rule.
ALL = {"keep_dense": ()}
RUNS: dict[str, tuple[Any, dict[str, Any]]] = {
    "dense": ("dense", {}),
    "fp16": ("fp16", {}),
    "bf16": ("bf16", {}),
    "bf16 sharded": ("bf16", {"route": "sharded"}),
    "bf16 residual": ("bf16", {"feedback": "residual"}),
    "terngrad": ("terngrad", {}),
    "terngrad all": ("terngrad", ALL),
    "terngrad 2bit blocks": ("terngrad:wire=2bit,block=64", ALL),
    "terngrad allgather": ("terngrad", {"route": "allgather"}),
    "terngrad residual": ("terngrad", {"feedback": "residual"}),
    "own scales": ("terngrad:scales=own", ALL),
    "own scales residual": ("terngrad:scales=own", {"feedback": "residual"}),
    "dgc clipped as a whole": ("dgc:0.3,warmup=0", {"feedback": "momentum:0.9,clip=5,norm=model", **ALL}),
    "clip chain": ("clip:2.5 >> ternary", {}),
    "rules": ({"2.*": "terngrad:clip=off", "*": "bf16"}, {}),
}
SOME = ("dense", "bf16 sharded", "terngrad all", "own scales residual")  # a kind of merging each


def all_equal(parameters: list[Tensor]) -> bool:
    return all(torch.equal(parameters[0], other) for other in parameters[1:])


def train(
    codec: Any, options: dict[str, Any], dtype: torch.dtype = torch.float32, steps: int = 10
) -> tuple[Tensor, list[float]]:
    with wrap(mlp(dtype), codec, **options) as it:
        losses = fit(it.model, steps)
        return it.parameters(), losses


@pytest.mark.parametrize(
    ("run", "world"), [*((run, 5) for run in RUNS), *((run, world) for run in SOME for world in (1, 8))]
)
def test_ranks_end_with_the_same_bits(teams: Teams, run: str, world: int) -> None:
    answers = teams(world).run(train, *RUNS[run], torch.float32, 4)
    assert all_equal([parameters for parameters, _ in answers])
    assert torch.isfinite(answers[0][0]).all()


@pytest.mark.parametrize(("run", "world"), [*((run, 3) for run in RUNS), *((run, 2) for run in SOME)])
def test_ranks_end_with_the_same_bits_and_learn(teams: Teams, run: str, world: int) -> None:
    answers = teams(world).run(train, *RUNS[run])
    assert all_equal([parameters for parameters, _ in answers])
    losses = torch.tensor([losses for _, losses in answers]).mean(0)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("run", ["dense", "fp16", "bf16 residual", "terngrad", "own scales residual"])
def test_other_dtypes(teams: Teams, run: str, dtype: torch.dtype) -> None:
    answers = teams(3).run(train, *RUNS[run], dtype)
    assert all_equal([parameters for parameters, _ in answers])
    losses = torch.tensor([losses for _, losses in answers]).mean(0)
    assert losses[-1] < 0.5 * losses[0]


@pytest.mark.parametrize(
    ("feature", "world"),
    [
        *((feature, 3) for feature in FEATURES),
        *((feature, world) for feature in FEATURES[:2] for world in (2, 5)),
    ],
)
def test_dense_is_plain_ddp_bit_for_bit(teams: Teams, feature: Feature, world: int) -> None:
    team = teams(world)
    assert torch.equal(team.run(feature, "dense")[0], team.run(feature, None)[0])


def plain_and_dense(dtype: torch.dtype) -> bool:
    results = []
    for codec in (None, "dense"):
        with wrap(mlp(dtype), codec) as it, parts_of(500):
            fit(it.model, 4)
            results.append(it.parameters())
    return torch.equal(*results)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_dense_is_plain_ddp_in_every_dtype_and_for_large_buckets(teams: Teams, dtype: torch.dtype) -> None:
    assert all(teams(3).run(plain_and_dense, dtype))


def feature_with(feature: Feature, codec: str, options: dict[str, Any]) -> Tensor:
    return feature(codec, **options)


@pytest.mark.parametrize("options", [{}, {"feedback": "residual"}], ids=["terngrad", "residual"])
@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_keeps_ranks_together(teams: Teams, feature: Feature, options: dict[str, Any]) -> None:
    parameters = teams(3).run(feature_with, feature, "terngrad", {**options, **ALL})
    assert all_equal(parameters)
    assert torch.isfinite(parameters[0]).all()


@pytest.mark.parametrize("options", [{}, {"feedback": "residual"}], ids=["terngrad", "residual"])
def test_bits_do_not_depend_on_buckets_or_on_other_models(teams: Teams, options: dict[str, Any]) -> None:
    team = teams(3)
    split = team.run(feature_with, features.several_buckets, "terngrad", options)[0]
    whole = team.run(feature_with, features.one_bucket, "terngrad", options)[0]
    assert torch.equal(split, whole)
    together = team.run(feature_with, features.two_models, "terngrad", options)[0]
    assert torch.equal(together, team.run(feature_with, features.one_by_one, "terngrad", options)[0])


def test_an_emulated_link_changes_no_bits(teams: Teams) -> None:
    options = {"link": tw.Link(rate="1gbit", latency_s=0.0001)}
    slow, fast = (
        teams(2).run(feature_with, features.several_buckets, "terngrad", o)[0] for o in (options, {})
    )
    assert torch.equal(slow, fast)


def in_parts(numel: int) -> Tensor:
    with parts_of(numel):
        return features.one_bucket("terngrad", feedback="residual", **ALL)


def test_bits_do_not_depend_on_parts(teams: Teams) -> None:
    team = teams(3)
    assert torch.equal(team.run(in_parts, 700)[0], team.run(in_parts, 1 << 21)[0])


def buckets_seen() -> list[list[tuple[str, ...]]]:
    """The tensors of every bucket, step by step."""
    seen: list[list[tuple[str, ...]]] = []
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None

        def known(engine: Engine, bucket: Bucket) -> None:
            seen[-1].append(bucket.layout.names)
            engine.exchange(bucket)

        it.compressor.node.exchange = known  # type: ignore[method-assign]
        for step in range(3):
            seen.append([])
            fit(it.model, 1, start=step)
    return seen


def test_there_are_several_buckets_and_they_are_rebuilt(teams: Teams) -> None:
    first, second, third = teams(2).run(buckets_seen)[0]
    assert first != second
    assert second == third
    assert len(second) > 1
    assert sorted(name for bucket in second for name in bucket) == sorted(
        name for name, _ in mlp().named_parameters()
    )


def local_and_mean(codec: str) -> tuple[list[Tensor], list[Tensor]]:
    """This rank's own gradients, and what the exchange makes of them."""
    with wrap(mlp(), codec) as it:
        with it.model.no_sync():
            loss_of(it.model(batch(0, 20))).backward()
        own = [p.grad.clone() for p in it.model.parameters() if p.grad is not None]
        it.model.zero_grad()
        loss_of(it.model(batch(0, 20))).backward()
        return own, [p.grad.clone() for p in it.model.parameters() if p.grad is not None]


@pytest.mark.parametrize("codec", ["terngrad", "terngrad:scales=own"])
@pytest.mark.parametrize("world", [2, 5])
def test_processes_and_threads_give_the_same_bits(teams: Teams, codec: str, world: int) -> None:
    answers = teams(world).run(local_and_mean, codec)
    net = mlp()
    layout = Layout.packed(Spec(name, tuple(p.shape)) for name, p in net.named_parameters())
    plan = tw.Plan.of(tw.Policy.of(codec), tw.Model.of(net), world)

    def simulate(group: ThreadGroup) -> Tensor:
        buffer = torch.cat([gradient.flatten() for gradient in answers[group.rank][0]])
        Engine(plan, group, torch.device("cpu")).exchange(Bucket(buffer, layout))
        return buffer

    for mean in run_ranks(world, simulate):
        assert torch.equal(mean, torch.cat([gradient.flatten() for gradient in answers[0][1]]))


def scaled_steps(feedback: str) -> tuple[list[bool], list[bool], Tensor, bool]:
    """GradScaler with one Inf on rank 1 in step 2; what was skipped, what was finite, how it ended."""
    net = mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10, growth_interval=3)
    with wrap(net, "terngrad", feedback=feedback, grad_scaler=scaler) as it:
        assert it.compressor is not None
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        skipped, held_finite = [], []
        for step in range(8):
            inputs = batch(step, 20)
            if step == 2 and dist.get_rank() == 1:
                inputs[0, 0] = float("inf")
            before = it.parameters()
            optimizer.zero_grad()
            scaler.scale(loss_of(it.model(inputs))).backward()
            scaler.step(optimizer)
            scaler.update()
            skipped.append(torch.equal(before, it.parameters()))
            held = local_state(it.compressor.engine)["feedback"].get("residual", {"residual": {}})
            kept = held["residual"].values()
            held_finite.append(all(bool(torch.isfinite(tensor).all()) for tensor in kept))
        return skipped, held_finite, it.parameters(), len(list(kept)) > 0


@pytest.mark.parametrize("feedback", ["none", "residual"])
def test_grad_scaler_skips_an_inf_step_on_all_ranks(teams: Teams, feedback: str) -> None:
    answers = teams(2).run(scaled_steps, feedback)
    for skipped, held_finite, parameters, has_memory in answers:
        assert skipped == [step == 2 for step in range(8)]
        assert all(held_finite)
        assert torch.isfinite(parameters).all()
        assert has_memory == (feedback == "residual")
    assert all_equal([parameters for _, _, parameters, _ in answers])


def in_a_subgroup() -> Tensor | None:
    """Ranks 0 and 2 train; rank 1 has not even heard of their group."""
    rank = dist.get_rank()
    pair = dist.new_group([0, 2], use_local_synchronization=True)
    if rank == 1:
        return None
    with wrap(mlp(), "terngrad", {"process_group": pair}) as it:
        fit(it.model, 3)
        return it.parameters()


def then_all_together() -> Tensor:
    """All ranks again, although ranks 0 and 2 have had more process groups than rank 1."""
    with wrap(mlp(), "terngrad") as it:
        fit(it.model, 3)
        return it.parameters()


def test_a_subgroup_needs_nobody_else(new_team: NewTeam) -> None:
    team = new_team(3)
    first, none, second = team.run(in_a_subgroup)
    assert none is None
    assert torch.equal(first, second)
    assert all_equal(team.run(then_all_together))


def report() -> dict[str, Any]:
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None
        fit(it.model, 3)
        return {**it.compressor.report().to_dict(), "text": str(it.compressor.report())}


def test_report_tells_what_was_sent(teams: Teams) -> None:
    answer = teams(2).run(report)[0]
    net = mlp()
    assert (answer["codec"], answer["world"], answer["steps"]) == ("terngrad", 2, 3)
    assert {layer["name"] for layer in answer["layers"]} == {name for name, _ in net.named_parameters()}
    assert answer["dense_bytes_per_step"] == 4 * sum(p.numel() for p in net.parameters())
    assert 4 < answer["ratio"] < 16
    assert all(seconds > 0 for seconds in answer["seconds"].values())
    errors = {layer["name"]: layer["relative_error"] for layer in answer["layers"]}
    assert errors["2.weight"] > 0.1
    assert "2.weight" in answer["text"]


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device here")
def test_cuda_gradients(teams: Teams) -> None:
    assert all_equal(teams(2).run(train_on_cuda))


def train_on_cuda() -> Tensor:
    with wrap(mlp().cuda(), "terngrad") as it:
        fit(it.model, 4, make_batch=lambda step: batch(step, 20).cuda())
        return it.parameters().cpu()
