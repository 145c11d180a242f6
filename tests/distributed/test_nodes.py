"""A hierarchy of 2 nodes with 2 workers each, as processes over gloo: DDP's features, states and failures."""

from __future__ import annotations

import signal
from collections.abc import Callable
from typing import Any

import features
import pytest
import torch
import torch.distributed as dist
from failing import IN_BACKWARD, Met, broken_encode, failure_of, signalled
from launch import Gone, NewTeam, Teams
from own_clock import OTHERS, own_clock
from rank import Failure
from test_auto import LINK, STEPS, wide
from test_drift import flip
from test_resume import begin, go_on, straight
from torch import Tensor
from training import batch, few_steps, fit, loss_of, mlp, wrap

import thinwire as tw
from thinwire.auto.autotuner import Trial
from thinwire.exchange.packing import opened
from thinwire.hooks.selector import AutoSelector

TWO: dict[str, Any] = {"hierarchy": 2}
RUNS: dict[str, tuple[str, dict[str, Any]]] = {
    "terngrad": ("terngrad", TWO),
    "topk": ("topk:0.05", TWO),
    "powersgd": ("powersgd:2", TWO),
}


def feature_with(feature: Callable[..., Tensor], codec: Any, options: dict[str, Any]) -> Tensor:
    return feature(codec, **options)


def all_equal(parameters: list[Tensor]) -> bool:
    return all(torch.equal(parameters[0], other) for other in parameters[1:])


FEATURES = [features.unused_parameters, features.uneven_inputs, features.two_models]


@pytest.mark.parametrize("feature", FEATURES)
def test_dense_is_plain_ddp_but_for_rounding(teams: Teams, feature: Callable[..., Tensor]) -> None:
    nested = teams(4).run(feature_with, feature, "dense", TWO)
    assert all_equal(nested)
    torch.testing.assert_close(nested[0], teams(4).run(feature, None)[0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("feature", FEATURES)
def test_every_feature_keeps_workers_together(teams: Teams, feature: Callable[..., Tensor]) -> None:
    assert all_equal(teams(4).run(feature_with, feature, "topk:0.1", {**TWO, "keep_dense": ()}))


@pytest.mark.parametrize("run", RUNS)
def test_stopped_and_resumed_gives_the_same_bits(teams: Teams, run: str) -> None:
    team = teams(4)
    expected = team.run(straight, *RUNS[run])
    assert all_equal(expected)
    local, gathered = zip(*team.run(begin, *RUNS[run]), strict=True)
    for files in (list(local), [gathered[3]]):
        resumed = team.run(go_on, *RUNS[run], files)
        assert all(torch.equal(parameters, expected[0]) for parameters in resumed)


def reported(codec: str, options: dict[str, Any]) -> tuple[tw.Report, str, str, int, int]:
    with wrap(mlp(), codec, {"bucket_cap_mb": 25}, **options) as it:
        assert it.compressor is not None
        fit(it.model, 3)
        report, plan = it.compressor.report(), it.compressor.plan
        place = dist.get_rank() % plan.per_node
        return report, str(report), str(plan), plan.step_bytes(), plan.node_bytes(place)


def test_bytes_between_nodes_and_inside_are_told_apart_and_are_those_of_the_plan(teams: Teams) -> None:
    for rank, (report, text, plan, between, inside) in enumerate(teams(4).run(reported, "terngrad", TWO)):
        assert (report.world, report.per_node, report.leads) == (4, 2, rank % 2 == 0)
        assert report.bytes_per_step == (between if rank % 2 == 0 else 0)
        assert report.node_bytes_per_step == inside
        assert "hierarchy: 2 nodes of 2 workers" in text
        assert "hierarchy: 2 nodes of 2 workers" in plan
        assert ("this worker leads no node" in text) == (rank % 2 == 1)
    flat, text, plan, *_ = teams(4).run(reported, "terngrad", {})[0]
    assert "hierarchy" not in text + plan
    assert "node" not in flat.seconds
    assert flat.node_bytes_per_step == 0


def scaled(codec: str) -> tuple[Tensor, list[bool], float]:
    """GradScaler, and an Inf on rank 3 in the second of four steps: which steps were taken, and the scale."""
    net = mlp()
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**10)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    taken = []
    with wrap(net, codec, grad_scaler=scaler, **TWO) as it:
        for step in range(4):
            optimizer.zero_grad()
            before = it.parameters()
            loss = loss_of(it.model(batch(step, 20)))
            scaler.scale(loss * (float("inf") if (step, dist.get_rank()) == (1, 3) else 1)).backward()
            scaler.step(optimizer)
            scaler.update()
            taken.append(not torch.equal(before, it.parameters()))
        return it.parameters(), taken, scaler.get_scale()


@pytest.mark.parametrize("codec", ["terngrad", "topk:0.1"])
def test_a_step_that_is_not_finite_on_one_worker_is_skipped_by_all(teams: Teams, codec: str) -> None:
    answers = teams(4).run(scaled, codec)
    assert all_equal([parameters for parameters, *_ in answers])
    for _, taken, scale in answers:
        assert (taken, scale) == ([True, False, True, True], 2.0**9)


@pytest.mark.parametrize("victim", [0, 3])
def test_a_killed_worker_is_named_in_its_own_and_in_other_nodes(new_team: NewTeam, victim: int) -> None:
    team = new_team(4)
    answers = team.answers(killed, victim)
    assert answers[victim] == Gone()
    for rank in set(range(4)) - {victim}:
        assert isinstance(answers[rank], Met), answers[rank]
        assert f"rank {victim} closed the connection or died" in answers[rank].first.text


def killed(victim: int) -> Met:
    return signalled(signal.SIGKILL, victim, IN_BACKWARD, "terngrad", {}, **TWO)


def test_an_error_of_a_leader_is_told_to_all(new_team: NewTeam) -> None:
    answers = new_team(4).run(broken, 2)
    assert answers[2].first.kinds[0] == "ZeroDivisionError"
    for rank in (0, 1, 3):
        assert 'rank 2 failed in operation "encode": ZeroDivisionError' in answers[rank].first.text


def broken(victim: int) -> Met:
    return broken_encode(victim, "terngrad", **TWO)


def drifting() -> Failure:
    with wrap(mlp(), "terngrad", check_every=1, **TWO) as it:
        fit(it.model, 2)
        if dist.get_rank() == 3:
            flip(dict(it.model.module.named_parameters())["2.weight"], 0)
        return failure_of(lambda: fit(it.model, 2, start=2))


def test_drift_inside_a_node_is_told_on_every_worker(teams: Teams) -> None:
    for failure in teams(4).run(drifting):
        assert "parameters have drifted apart: after 3 steps rank 3 and rank 0" in failure.text


def refused(wishes: list[str | int]) -> Failure:
    return failure_of(lambda: wrap(mlp(), "terngrad", hierarchy=wishes[dist.get_rank()]))


@pytest.mark.parametrize(
    ("wishes", "said"),
    [
        ([3, 3, 3, 3], ["hierarchy=3 does not fit 4 workers"] * 4),
        ([2, 2, 2, "auto"], ['rank 0 asked for 2, rank 3 for "auto"'] * 4),
        ([2, 2, "off", 2], ["asked for 2, rank 2 for"] * 2 + ["ranks disagree"] + ["asked for 2"]),
        ([2, 2, 2, "on"], ["hierarchy='on' is neither"] * 4),
    ],
)
def test_what_does_not_fit_is_refused_on_all_workers(
    teams: Teams, wishes: list[str | int], said: list[str]
) -> None:
    for failure, words in zip(teams(4).run(refused, wishes), said, strict=True):
        assert words in failure.text, failure.trace


def auto_is_flat_on_one_host() -> int:
    with wrap(mlp(), "terngrad", hierarchy="auto") as it:
        assert it.compressor is not None
        fit(it.model, 1)
        return it.compressor.report().per_node


def test_auto_changes_nothing_on_one_host(teams: Teams) -> None:
    assert teams(2).run(auto_is_flat_on_one_host) == [1, 1]


def auto_by_itself_on_one_host() -> tuple[int, list[str]]:
    with wrap(mlp(), "auto") as it:
        assert it.compressor is not None
        course = it.compressor.auto
        assert isinstance(course, AutoSelector)
        fit(it.model, 1)
        return it.compressor.report().per_node, [
            text for text in course.autotuner.choices if "by nodes" in text
        ]


def test_on_one_host_codec_auto_knows_no_nodes(teams: Teams) -> None:
    assert teams(4).run(auto_by_itself_on_one_host) == [(1, [])] * 4


def different_codecs() -> Failure:
    return failure_of(lambda: wrap(mlp(), "sign" if dist.get_rank() == 3 else "terngrad", **TWO))


def test_workers_with_different_plans(teams: Teams) -> None:
    for failure in teams(4).run(different_codecs):
        assert "ranks disagree on their plans" in failure.text
        assert "rank 0 and rank 3 differ" in failure.text


def auto_run(steps: int, quickest: str) -> tuple[list[str], Tensor, str, int]:
    """The codec of every step under auto where this choice is the quickest; parameters, report, steps."""
    options: dict[str, Any] = {"link": LINK, "quality": "aggressive", **TWO}
    table = {"dense": 0.1, "topk:0.01": 0.025, "topk:0.01 by nodes": 0.025, OTHERS: 0.05} | {quickest: 0.02}
    with few_steps(), wrap(wide(), "auto", **options) as it, own_clock(it, table):
        assert it.compressor is not None
        codecs = []
        for step in range(steps):
            fit(it.model, 1, step)
            codecs.append(it.compressor.report().codec)
        gathered = opened(it.compressor.state_dict(gather=True), rank=0)
        assert gathered["auto"]["decision"]["codec"] == quickest
        report = it.compressor.report()
        return codecs, it.parameters(), str(report), report.steps


@pytest.mark.parametrize("quickest", ["topk:0.01", "topk:0.01 by nodes"])
def test_auto_switches_all_workers_of_all_nodes_at_the_same_step(teams: Teams, quickest: str) -> None:
    answers = teams(4).run(auto_run, STEPS, quickest)
    assert all_equal([parameters for _, parameters, *_ in answers])
    for codecs, _, report, steps in answers:
        assert (codecs, steps) == (answers[0][0], STEPS)
        assert codecs[-1] == f"auto ({quickest})", report
        assert {"by nodes" in codec for codec in codecs[4:]} == {True, False}  # both ways were tried
        assert ("hierarchy: 2 nodes of 2 workers" in report) == ("by nodes" in quickest)


def auto_without_a_link() -> tuple[Tensor, int, list[bool]]:
    """Which steps went DDP's own way: dense ones, but first thinwire sends what a codec held back."""
    with wrap(wide(), "auto", quality="aggressive", **TWO) as it:
        assert it.compressor is not None
        course = it.compressor.auto
        assert isinstance(course, AutoSelector)
        course.autotuner._stage = Trial("dense", 100, 0)  # it does nothing by itself
        fit(it.model, 1)
        passed = []
        held, unheld, nested = "topk:0.01", "terngrad", "topk:0.01 by nodes"
        for text, steps in ((held, 1), ("dense", 2), (unheld, 1), ("dense", 1), (nested, 2), ("dense", 2)):
            course.autotuner.actions.steer(text)
            course.autotuner.codec = text
            for _ in range(steps):
                fit(it.model, 1, it.compressor.engine.step)
                passed.append(course.passes)
        it.compressor.wait()
        return it.parameters(), it.compressor.engine.step, passed


def test_what_is_left_of_a_codec_is_sent_before_ddp_takes_over(teams: Teams) -> None:
    answers = teams(4).run(auto_without_a_link)
    assert all_equal([parameters for parameters, *_ in answers])
    for _, steps, passed in answers:
        assert steps == 10
        assert passed == [False, False, True, False, True, False, False, False, True]
