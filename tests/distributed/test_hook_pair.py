"""The (state, hook) pair: what every PyTorch front end takes, with and without the model's names."""

from __future__ import annotations

import time
import warnings
from typing import Any

import torch
import torch.distributed as dist
from failing import failure_of, in_backward_of
from launch import NewTeam, Teams
from rank import Failure
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training import SMALL_BUCKETS_MB, fit, mlp, wrap

import thinwire as tw
from thinwire.exchange.engine import Bucket, Engine


def by_pair(named: bool, codec: str, options: dict[str, Any]) -> tuple[Tensor, list[str]]:
    """Parameters after some steps, and the warnings on the way."""
    net = mlp()
    model = DistributedDataParallel(net, bucket_cap_mb=SMALL_BUCKETS_MB)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        state, hook = tw.ddp_hook(codec, model=net if named else None, **options)
    model.register_comm_hook(state, hook)
    fit(model, 4)
    state.close()
    parameters = torch.cat([p.detach().double().flatten() for p in model.parameters()])
    return parameters, [str(warning.message) for warning in caught]


def by_compress(codec: str) -> Tensor:
    with wrap(mlp(), codec) as it:
        fit(it.model, 4)
        return it.parameters()


def test_the_pair_with_a_model_is_compress(teams: Teams) -> None:
    team = teams(3)
    for parameters, warned in team.run(by_pair, True, "terngrad", {}):
        assert torch.equal(parameters, team.run(by_compress, "terngrad")[0])
        assert warned == []


def test_the_pair_without_a_model_warns_and_works(teams: Teams) -> None:
    answers = teams(3).run(by_pair, False, "terngrad", {})
    for parameters, warned in answers:
        assert torch.equal(parameters, answers[0][0])
        assert len(warned) == 1
        assert "last or embedding" in warned[0]
        assert "model=" in warned[0]


def test_the_pair_without_a_model_warns_only_if_it_matters(teams: Teams) -> None:
    team = teams(2)
    assert team.run(by_pair, False, "bf16", {})[0][1] == []
    assert team.run(by_pair, False, "terngrad", {"keep_dense": ("vector", "small")})[0][1] == []


def late_worker(late_rank: int) -> Tensor:
    """No names, and unused parameters, so that buckets stay as they are.

    On one rank the exchanges trail the backward pass; on the others the backward pass trails the exchanges.
    """
    net, late = mlp(), dist.get_rank() == late_rank
    model = DistributedDataParallel(net, bucket_cap_mb=SMALL_BUCKETS_MB, find_unused_parameters=True)
    state, hook = tw.ddp_hook("bf16")
    model.register_comm_hook(state, hook)

    def trail(engine: Engine, bucket: Bucket) -> None:
        time.sleep(0.05 if late else 0)
        engine.exchange(bucket)

    state.node.exchange = trail  # type: ignore[method-assign]
    in_backward_of(net, lambda *_: None if late else time.sleep(0.03))
    fit(model, 3)
    state.close()
    return torch.cat([p.detach().double().flatten() for p in model.parameters()])


def test_the_pair_without_a_model_plans_in_the_order_of_buckets(new_team: NewTeam) -> None:
    """A plan that grows under a running exchange made one rank compare digests and another not: SIGABRT."""
    first, second = new_team(2).run(late_worker, 1)
    assert torch.equal(first, second)


def nameless_refusals() -> list[Failure]:
    state, _ = tw.ddp_hook("bf16")
    refused = [
        failure_of(lambda: tw.ddp_hook({"fc*": "terngrad"})),
        failure_of(state.state_dict),
        failure_of(lambda: state.load_state_dict({})),
    ]
    state.close()
    return refused


def test_without_a_model_what_needs_names_is_refused(teams: Teams) -> None:
    for rules, saving, loading in teams(2).run(nameless_refusals):
        assert rules.kinds[0] == "PlanError"
        assert '"fc*"' in rules.text
        assert saving.kinds[0] == loading.kinds[0] == "StateError"
        for failure in (rules, saving, loading):
            assert "pass model= to ddp_hook" in failure.text
