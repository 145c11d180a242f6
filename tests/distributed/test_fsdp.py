"""FSDP2 over real processes: gradients and weights in few bits, unit by unit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from launch import Teams
from sharding import compressed, sharded, train, whole
from torch import Tensor

Ended = tuple[list[float], dict[str, Tensor]]


def plain(model: dict[str, Any], steps: int) -> Ended:
    net = sharded(**model)
    return train(net, steps), whole(net)


def run(model: dict[str, Any], codec: str, options: dict[str, Any], steps: int) -> tuple[Ended, Any]:
    net = sharded(**model)
    with compressed(net, codec, **options) as compressor:
        losses = train(net, steps)
        report, plan = compressor.report(), compressor.plan
        found = {
            "bytes": (report.bytes_per_step, plan.step_bytes()),
            "weights": (report.weights_bytes_per_step, plan.weights_step_bytes),
            "ratio": report.ratio,
            "text": f"{plan}\n{report}",
        }
        return (losses, whole(net)), found


MODELS: dict[str, dict[str, Any]] = {
    "nested": {},
    "kept": {"reshard": False},
    "tied": {"tied": True},
    "frozen": {"frozen": True},
    "mixed": {"mixed": "bfloat16", "reduce": "float32"},
    "half": {"mixed": "bfloat16"},
    "uneven": {"width": 42},
}


@pytest.mark.parametrize("model", MODELS)
def test_dense_equals_torchs_own(teams: Teams, model: str) -> None:
    expected = teams(2).run(plain, MODELS[model], 3)
    results = teams(2).run(run, MODELS[model], "dense", {}, 3)
    for (losses, parameters), ((own_losses, own), _) in zip(expected, results, strict=True):
        assert own_losses == pytest.approx(losses, rel=1e-3)
        tolerance = 5e-3 if "mixed" in MODELS[model] else 1e-5
        for name, tensor in parameters.items():
            assert torch.allclose(own[name], tensor, atol=tolerance), name


@pytest.mark.parametrize("codec", ["terngrad", "qsgd:4", "topk:0.3 @ feedback=none", "bf16"])
def test_few_bits_train_and_send_what_the_plan_says(teams: Teams, codec: str) -> None:
    text, _, feedback = codec.partition(" @ feedback=")
    options = {"feedback": feedback} if feedback else {}
    results = teams(3).run(run, {}, text, options, 12)
    for (losses, parameters), found in results:
        assert found["bytes"][0] == found["bytes"][1]
        assert found["weights"][0] == pytest.approx(found["weights"][1])
        assert losses[-1] < losses[0] - 0.3
        for name, tensor in parameters.items():
            assert torch.equal(tensor, results[0][0][1][name])
    assert "reduce-scatter" in results[0][1]["text"]
