"""States as bytes: what goes in comes out, and nothing that could run is read."""

from __future__ import annotations

from typing import Any

import torch

from thinwire.exchange.packing import pack_state, unpack_state


def test_everything_that_a_state_holds_comes_back() -> None:
    state: dict[str, Any] = {
        "version": 5,
        "ranks": [{"residual": {"residual": {"a": torch.randn(3, 4), "b": torch.empty(0)}}}, {}],
        "learned": {"a": {"basis": torch.arange(6, dtype=torch.float64).view(2, 3), "n": torch.tensor(3)}},
        "schedule": {"text": "guard", "state": {"level": 0.5, "why": None}, "pending": [], "on": True},
        "plan": ["a[3, 4]:float32 | TopK(0.1) | residual | allgather"],
        "half": torch.tensor([1.5, float("inf")], dtype=torch.bfloat16),
    }
    read = unpack_state(pack_state(state))
    assert read.keys() == state.keys()
    assert read["schedule"] == state["schedule"]
    assert read["plan"] == state["plan"]
    assert read["ranks"][1] == {}
    held = state["ranks"][0]["residual"]["residual"]
    for name, tensor in held.items():
        assert torch.equal(read["ranks"][0]["residual"]["residual"][name], tensor)
    assert read["learned"]["a"]["basis"].dtype == torch.float64
    assert torch.equal(read["learned"]["a"]["basis"], state["learned"]["a"]["basis"])
    assert read["learned"]["a"]["n"].shape == ()
    assert torch.equal(read["half"], state["half"])


def test_a_list_that_looks_like_a_tensor_stays_a_list() -> None:
    state = {"words": ["tensor", "float32", [1], 0, 4]}
    assert unpack_state(pack_state(state)) == state
