"""torch.compile around or below DDP: the same names, rules and states as without it."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from launch import Teams
from torch import Tensor
from torch.nn.parallel import DistributedDataParallel
from training import fit, mlp, wrap

import thinwire as tw

RULES = {"0.weight": "terngrad", "*": "fp16"}
STEPS = 3


def eager() -> tuple[Tensor, dict[str, Any], list[str]]:
    with wrap(mlp(), RULES, {"bucket_cap_mb": 25}, feedback="residual") as it:
        assert it.compressor is not None
        fit(it.model, STEPS)
        return it.parameters(), it.compressor.state_dict(), [e.spec.name for e in it.compressor.plan.entries]


def compiled(below: bool, state: list[dict[str, Any]]) -> tuple[Tensor, list[str]]:
    """DDP(compile(net)) or compile(DDP(net)), as tw.compress gets it; it takes the eager state."""
    net: Any = torch.compile(mlp(), backend="eager") if below else mlp()
    ddp: Any = DistributedDataParallel(net)
    given: Any = ddp if below else torch.compile(ddp, backend="eager")
    with tw.compress(given, RULES, feedback="residual") as compressor:
        fit(ddp, STEPS)
        compressor.load_state_dict(state[dist.get_rank()])
        parameters = torch.cat([p.detach().double().flatten() for p in ddp.parameters()])
        return parameters, [entry.spec.name for entry in compressor.plan.entries]


def test_a_compiled_model_is_the_same_model(teams: Teams) -> None:
    team = teams(2)
    (parameters, _, names), *_ = plain = team.run(eager)
    states = [state for _, state, _ in plain]
    for below in (True, False):
        for mine, own_names in team.run(compiled, below, states):
            assert own_names == names
            assert torch.equal(mine, parameters)
