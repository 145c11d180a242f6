"""What `compress` takes as a codec: options behind "@" as on the command line; and what it refuses."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from failing import failure_of
from launch import Teams
from rank import Failure
from torch.nn.parallel import DistributedDataParallel
from training import fit, mlp, wrap

import thinwire as tw


def plan_of(codec: Any, options: dict[str, Any]) -> tuple[str, str]:
    with wrap(mlp(), codec, **options) as it:
        assert it.compressor is not None
        fit(it.model, 2)
        return str(it.compressor.plan), str(it.compressor.hierarchy.per_node)


@pytest.mark.parametrize(
    ("text", "codec", "options"),
    [
        ("terngrad @ feedback=residual", "terngrad", {"feedback": "residual"}),
        (
            "topk:0.01 @ feedback=none route=allgather",
            "topk:0.01",
            {"feedback": "none", "route": "allgather"},
        ),
        ("dct >> topk:0.1 @ schedule=steps:0=1/4=0.5", "dct >> topk:0.1", {"schedule": "steps:0=1/4=0.5"}),
        ("qsgd:4 @ hierarchy=2", "qsgd:4", {"hierarchy": 2}),
    ],
)
def test_options_behind_at_are_those_of_compress(
    teams: Teams, text: str, codec: str, options: dict[str, Any]
) -> None:
    assert teams(4).run(plan_of, text, {}) == teams(4).run(plan_of, codec, options)


def of_pair_and_auto() -> tuple[str, str]:
    net = mlp()
    state, _ = tw.ddp_hook("terngrad @ feedback=residual", model=net)
    with wrap(mlp(), "auto @ quality=exact") as it:
        assert it.compressor is not None
        fit(it.model, 2)
        explained = str(it.compressor.report())
    feedback = {entry.feedback for entry in state.plan.entries}
    state.close()
    return str(sorted(feedback)), explained


def test_the_pair_and_auto_take_them_too(teams: Teams) -> None:
    for feedback, explained in teams(2).run(of_pair_and_auto):
        assert "residual" in feedback
        assert 'quality "exact"' in explained


def without_a_codec() -> str:
    model = DistributedDataParallel(mlp())
    with tw.compress(model) as compressor:
        fit(model, 1)
        return str(compressor.report().codec)


def test_without_a_codec_it_is_auto(teams: Teams) -> None:
    assert teams(2).run(without_a_codec) == ["auto (dense)"] * 2


WRONG: dict[str, tuple[Any, dict[str, Any], list[str]]] = {
    "twice": (
        "topk:0.01 @ feedback=none",
        {"feedback": "residual"},
        ["feedback=", "behind @", "leave one out"],
    ),
    "twice the same": ("topk:0.01 @ feedback=none", {"feedback": "none"}, ["feedback=", "leave one out"]),
    "unknown": ("topk:0.01 @ memroy=none", {}, ['"memroy=none" behind @', "feedback, route, schedule"]),
    "nothing": ("topk:0.01 @", {}, ["nothing stands behind @"]),
    "of DDP": ("topk:0.01 @ bucket=5", {}, ["bucket=5", "bucket_cap_mb=5", "DistributedDataParallel"]),
    "in a rule": ({"*": "topk:0.01 @ feedback=none"}, {}, ["behind @", "whole model", "feedback="]),
    "misspelt auto": ("atuo", {}, ['did you mean "auto"?']),
    "no rules": ({}, {}, ["no rules", '"*"']),
    "no such rule": ("terngrad", {"keep_dense": "lats"}, ['"lats" is no rule', "last"]),
}


def refusal(codec: Any, options: dict[str, Any]) -> Failure:
    model = DistributedDataParallel(mlp())
    return failure_of(lambda: tw.compress(model, codec, **options))


@pytest.mark.parametrize("wrong", WRONG)
def test_what_does_not_fit_is_refused(teams: Teams, wrong: str) -> None:
    codec, options, words = WRONG[wrong]
    for failure in teams(2).run(refusal, codec, options):
        assert failure.kinds[0] in ("CodecError", "PlanError"), failure.trace
        for word in words:
            assert word in failure.text, failure.text


def dense_layers(keep_dense: Any) -> list[str]:
    with wrap(mlp(), "terngrad", keep_dense=keep_dense) as it:
        assert it.compressor is not None
        return [entry.spec.name for entry in it.compressor.plan.entries if str(entry.codec) == "dense"]


def test_one_word_to_keep_dense_may_be_a_text(teams: Teams) -> None:
    assert teams(2).run(dense_layers, "last")[0] == teams(2).run(dense_layers, ("last",))[0] != []


def former_names() -> list[Any]:
    """`memory=` and `control=` do what `feedback=` and `schedule=` do, with a warning; both are an error."""
    model = DistributedDataParallel(mlp())
    former: dict[str, Any] = {"memory": "none", "control": "guard"}
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with tw.compress(model, "topk:0.05", **former) as compressor:
            plan = compressor.plan
    told = [str(warning.message) for warning in caught if warning.category is DeprecationWarning]
    both = failure_of(lambda: tw.compress(model, "topk:0.05", feedback="none", **former))
    return [{entry.feedback for entry in plan.entries}, plan.schedule is not None, told, both.text]


def test_the_former_names_work_for_one_more_release(teams: Teams) -> None:
    for feedbacks, has_schedule, told, both in teams(2).run(former_names):
        assert (feedbacks, has_schedule) == ({"none"}, True)
        assert told == ["memory= is called feedback= now", "control= is called schedule= now"]
        assert "memory= is the former name of feedback=" in both
