"""FSDP2 over real processes: weights in few bits, accumulation, resuming, replicas, and what is refused."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from failing import failure_of
from launch import NewTeam, Teams
from rank import Failure
from sharding import Net, batch, compressed, mesh, sharded, train, whole
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.nn.parallel import DistributedDataParallel

import thinwire as tw

DIFFERENCES: dict[str, Any] = {"weights": "difference >> qsgd:4", "keep_weights": True}


def run(model: dict[str, Any], codec: str, options: dict[str, Any], steps: int) -> Any:
    net = sharded(**model)
    with compressed(net, codec, **options) as compressor:
        losses = train(net, steps)
        report, plan = compressor.report(), compressor.plan
        return {
            "losses": losses,
            "bytes": (report.weights_bytes_per_step, plan.weights_step_bytes, plan.weights.plain_bytes),
            "copies": plan.weights.copy_bytes,
            "text": str(plan),
            "whole": whole(net),
        }


@pytest.mark.parametrize(
    ("weights", "reshard"),
    [("qsgd:8", True), ("bf16", False), ("difference >> qsgd:4", True), ("difference >> qsgd:4", False)],
)
def test_weights_in_few_bits(teams: Teams, weights: str, reshard: bool) -> None:
    plain = teams(2).run(run, {"reshard": reshard}, "dense", {}, 12)[0]
    options = {"weights": weights, "keep_weights": "difference" in weights}
    results = teams(2).run(run, {"reshard": reshard}, "dense", options, 12)
    for one in results:
        sent, planned, as_they_are = one["bytes"]
        if "difference" in weights:  # the first gather is of weights as they are
            assert planned < sent < planned + as_they_are / 6
            assert f"copies of them take {one['copies']:,} bytes" in one["text"]
            assert planned < as_they_are / (3 if not reshard else 6)
        else:
            assert sent == planned < as_they_are / 1.5
            assert one["copies"] == 0
        assert one["losses"][-1] < plain["losses"][-1] + 0.2
        assert all(torch.equal(one["whole"][name], t) for name, t in results[0]["whole"].items())


def accumulated(codec: str) -> tuple[float, int, float]:
    """Two backward passes without an exchange, then one with it."""
    net = sharded()
    with compressed(net, codec) as compressor:
        for micro in range(3):
            net.set_requires_gradient_sync(micro == 2)  # type: ignore[operator]
            x, y = batch(micro)
            nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten()).backward()
        grads = torch.cat([p.grad.full_tensor().flatten() for p in net.parameters()])  # type: ignore[union-attr]
        return grads.norm().item(), compressor.report().steps, compressor.report().bytes_per_step


def test_accumulated_gradients_are_exchanged_once(teams: Teams) -> None:
    dense = teams(2).run(accumulated, "dense")[0]
    few = teams(2).run(accumulated, "qsgd:8")[0]
    assert few[1] == dense[1] == 1
    assert few[0] == pytest.approx(dense[0], rel=0.05)


class App:
    """Model, optimizer and compressor as DCP saves them."""

    def __init__(self, net: nn.Module, optimizer: Any, compressor: Any, gather: bool) -> None:
        self.net, self.optimizer, self.compressor, self.gather = net, optimizer, compressor, gather

    def state_dict(self) -> dict[str, Any]:
        model, optimizer = get_state_dict(self.net, self.optimizer)
        own = self.compressor.state_dict(gather=self.gather)
        return {"model": model, "optimizer": optimizer, "compressor": own}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        set_state_dict(
            self.net,
            self.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
        )
        self.compressor.load_state_dict(state["compressor"])


def straight(codec: str, options: dict[str, Any]) -> dict[str, Tensor]:
    net = sharded()
    with compressed(net, codec, **options):
        train(net, 7, optimizer=torch.optim.AdamW(net.parameters(), lr=0.01))
        return whole(net)


def save(codec: str, options: dict[str, Any], folder: str, gather: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    net = sharded()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with compressed(net, codec, **options) as compressor:
        train(net, 3, optimizer=optimizer)
        dcp.save({"app": App(net, optimizer, compressor, gather)}, checkpoint_id=folder)
        return {"whole": whole(net), "held": held(compressor)}


def held(compressor: Any) -> dict[str, Tensor]:
    feedback = compressor.engine.feedbacks.get("residual")
    return {} if feedback is None else dict(feedback.state()["residual"])


def go_on(codec: str, options: dict[str, Any], folder: str, gather: bool) -> dict[str, Any]:
    warnings.simplefilter("ignore")
    net = sharded()
    optimizer = torch.optim.AdamW(net.parameters(), lr=0.01)
    with compressed(net, codec, **options) as compressor:
        dcp.load({"app": App(net, optimizer, compressor, gather)}, checkpoint_id=folder)
        loaded, kept = whole(net), held(compressor)
        train(net, 4, start=3, optimizer=optimizer)
        return {"loaded": loaded, "whole": whole(net), "held": kept, "step": compressor.engine.step}


RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "qsgd": ("qsgd:4", {}),
    "differences": ("terngrad", DIFFERENCES),
    "feedback": ("topk:0.1", {"feedback": "residual"}),
}


@pytest.mark.parametrize(
    ("name", "gather"), [("qsgd", False), ("differences", False), ("differences", True), ("feedback", False)]
)
def test_a_resumed_run_has_the_same_bits(teams: Teams, tmp_path: Path, name: str, gather: bool) -> None:
    expected = teams(4).run(straight, *RUNS[name])[0]
    teams(4).run(save, *RUNS[name], str(tmp_path), gather)
    for resumed in teams(4).run(go_on, *RUNS[name], str(tmp_path), gather):
        assert all(torch.equal(resumed["whole"][n], t) for n, t in expected.items())


@pytest.mark.parametrize("name", RUNS)
def test_half_as_many_ranks_go_on_and_lose_nothing(teams: Teams, tmp_path: Path, name: str) -> None:
    saved = teams(4).run(save, *RUNS[name], str(tmp_path), True)
    resumed = teams(2).run(go_on, *RUNS[name], str(tmp_path), True)
    for one in resumed:
        assert all(torch.equal(one["loaded"][n], t) for n, t in saved[0]["whole"].items())
        assert one["step"] == 7
    for tensor in saved[0]["held"]:
        numel = min(one["held"][tensor].numel() for one in (*saved, *resumed))
        before = sum(one["held"][tensor][:numel] for one in saved)
        after = sum(one["held"][tensor][:numel] for one in resumed)
        assert torch.allclose(before, after, atol=1e-5)


def replicated(codec: str, options: dict[str, Any], steps: int) -> Any:
    grid = mesh(2, 2)
    torch.manual_seed(3 + dist.get_rank())  # different at first: all take those of the first replica
    net = Net()
    for block in net.blocks:
        fully_shard(block, mesh=grid["shard"])
    fully_shard(net, mesh=grid["shard"])
    group = grid["replicate"].get_group()
    with compressed(net, codec, replicate_group=group, **options) as compressor:
        losses = train(net, steps)
        replicas = compressor.replicas.engine.group.step_bytes / steps
        compressor.load_state_dict(compressor.state_dict())
        assert "leave out gather=True" in failure_of(lambda: compressor.state_dict(gather=True)).text
        return losses, whole(net), replicas, compressor.report().bytes_per_step


@pytest.mark.parametrize(("codec", "inside"), [("dense", None), ("qsgd:4", "qsgd:8"), ("topk:0.1", None)])
def test_replicas_end_with_the_same_bits(teams: Teams, codec: str, inside: str | None) -> None:
    results = teams(4).run(replicated, codec, {"inside": inside}, 15)
    losses = results[0][0]
    assert losses[-1] < losses[0] - 0.3
    for _, parameters, _, _ in results:
        assert all(torch.equal(parameters[n], t) for n, t in results[0][1].items())


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "auto": ({"codec": "auto"}, 'codec="auto" measures the buckets of DDP'),
    "feedback": ({"codec": "topk:0.1"}, 'asks for error feedback "residual", which holds whole gradients'),
    "learns": ({"codec": "powersgd:2", "feedback": "none"}, "learns from the mean of whole tensors"),
    "ef21": ({"codec": "topk:0.1", "feedback": "ef21"}, "needs the mean of whole tensors"),
    "route": ({"codec": "qsgd:4", "route": "allgather"}, "route= does not fit an FSDP2 model"),
    "drift": ({"codec": "qsgd:4", "check_every": 10}, "there is nothing to compare"),
    "copies": ({"codec": "qsgd:4", "weights": "difference >> qsgd:4"}, "keeps a copy of all weights"),
    "coder": ({"codec": "qsgd:4", "weights": "topk:0.1"}, "must be a coder alone"),
    "inside": ({"codec": "qsgd:4", "inside": "qsgd:8"}, "pass replicate_group= too"),
}


def refused(name: str) -> Failure:
    warnings.simplefilter("ignore")
    options = dict(BAD[name][0])
    return failure_of(lambda: tw.compress(sharded(), options.pop("codec"), **options))


@pytest.mark.parametrize("name", BAD)
def test_what_does_not_fit_is_refused_on_all_ranks(teams: Teams, name: str) -> None:
    for failure in teams(2).run(refused, name):
        assert BAD[name][1] in failure.text


def refused_model(kind: str) -> Failure:
    warnings.simplefilter("ignore")
    net: Any = Net()
    options: dict[str, Any] = {}
    if kind == "half":
        fully_shard(net.blocks[0])
    if kind == "fsdp1":
        net = FullyShardedDataParallel(net, device_id=torch.device("cpu"))
    if kind == "2-D":
        fully_shard(net, mesh=mesh(1, 2))
    if kind == "twice":
        fully_shard(net)
        tw.compress(net, "qsgd:4").close()
    if kind == "ddp":
        net, options = DistributedDataParallel(net), {"weights": "qsgd:8"}
    if kind == "loose":
        fully_shard(net, ignored_params={net.read_out.weight})
    return failure_of(lambda: tw.compress(net, "qsgd:4", **options))


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        ("half", "only parts of this model are under FSDP2"),
        ("fsdp1", "FSDP1"),
        ("2-D", "replicate_group="),
        ("twice", "custom reduce-scatter"),
        ("ddp", "weights= is for FSDP2 models"),
        ("loose", "read_out.weight is in no FSDP2 unit"),
    ],
)
def test_models_that_are_not_whole_are_refused(teams: Teams, kind: str, words: str) -> None:
    for failure in teams(2).run(refused_model, kind):
        assert words in failure.text


class Forked(Net):
    """Uses its second block on some inputs only."""

    def forward(self, symbols: Tensor) -> Tensor:
        x = self.token(symbols)
        first: Any = self.blocks[0]
        y: Tensor = self.read_out(first.up(x)[..., :48] if self.training else x)
        return y


def unused() -> Failure:
    net = Forked()
    fully_shard(net)
    with compressed(net, "qsgd:4"):
        return failure_of(lambda: train(net, 1))


def test_parameters_without_a_gradient_are_named_with_the_way_out(new_team: NewTeam) -> None:
    for failure in new_team(2).answers(unused):
        assert "set_reduce_scatter_unused_params(True)" in failure.text


def odd_codec() -> Failure:
    codec = "qsgd:4" if dist.get_rank() else "terngrad"
    return failure_of(lambda: tw.compress(sharded(), codec))


def test_ranks_with_different_codecs_are_refused(new_team: NewTeam) -> None:
    for failure in new_team(2).answers(odd_codec):
        assert "ranks disagree on their plans" in failure.text


def spoilt(victim: int) -> tuple[bool, bool]:
    """A NaN on one rank: all shards of that tensor's row become NaN, feedback holds nothing of it."""
    net = sharded()
    with compressed(net, "topk:0.3", feedback="residual") as compressor:
        train(net, 2)
        before = held(compressor)
        if dist.get_rank() == victim:
            next(net.blocks[0].parameters()).register_hook(lambda g: g * float("nan"))  # type: ignore[no-untyped-call]
        x, y = batch(5)
        loss = nn.functional.cross_entropy(net(x).flatten(0, 1), y.flatten())
        (loss * (float("nan") if dist.get_rank() == victim else 1.0)).backward()
        after = held(compressor)
        kept = all(torch.equal(before[name], after[name]) for name in before)
        finite = all(bool(p.grad.full_tensor().isfinite().all()) for p in net.parameters())  # type: ignore[union-attr]
        return kept, finite


def test_nan_spoils_the_step_on_all_ranks_and_nothing_else(new_team: NewTeam) -> None:
    for kept, finite in new_team(3).run(spoilt, 1):
        assert kept
        assert not finite
