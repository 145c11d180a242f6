"""The codec of examples/own_codec.py, as the example runs it, and held to what every codec owes."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch
from example_job import EXAMPLES, Server, run

import thinwire as tw
from simulation import Simulation, assert_same, gaussian, specs_of

NAME = "own_codec.Byte"
SPECS = specs_of({"one": 1, "odd": (31, 43), "none": 0, "more": 4096})


@pytest.fixture(autouse=True)
def on_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a user's own module is."""
    monkeypatch.syspath_prepend(EXAMPLES)


def simulation(world: int) -> Simulation:
    return Simulation(f"{NAME}:levels=100", SPECS, world)


def test_the_example_learns_with_its_own_codec(scripts: Server, tmp_path: Path) -> None:
    text = run(scripts, tmp_path, "own_codec.py")[0]
    losses = [float(loss) for loss in re.findall(r"loss ([\d.]+)", text)]
    assert len(losses) == 4
    assert losses[-1] < losses[0]
    assert "Byte(levels=100) on 2 workers" in text
    ratio = re.search(r"([\d.]+)x fewer than fp32 all-reduce", text)
    assert ratio is not None, text
    assert float(ratio[1]) > 3.5  # a byte for four


@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_ranks_get_the_mean_to_a_level(world: int) -> None:
    source = gaussian(SPECS)
    means = [steps[0] for steps in simulation(world).run(source)]
    for rank in range(1, world):
        assert_same(means[rank], means[0])
    for spec in SPECS:
        gradients = torch.stack([source(0, rank)[spec.name] for rank in range(world)])
        level = gradients.abs().amax().item() / 100 if spec.numel else 0.0
        assert torch.allclose(means[0][spec.name], gradients.mean(0), rtol=0, atol=0.51 * level)


def test_what_is_not_finite_is_not_finite_everywhere() -> None:
    def source(step: int, rank: int) -> dict[str, torch.Tensor]:
        gradients = dict(gaussian(SPECS)(step, rank))
        if rank == 1:
            gradients["odd"][3, 4], gradients["more"][7] = float("nan"), float("inf")
        return gradients

    for steps in simulation(2).run(source):
        assert not steps[0]["odd"].isfinite().any()
        assert not steps[0]["more"].isfinite().all()
        assert steps[0]["one"].isfinite().all()


def test_the_plan_knows_it_by_text_and_by_object() -> None:
    own_codec = importlib.import_module("own_codec")
    by_text = simulation(2).plan
    by_object = Simulation(own_codec.Byte(levels=100), SPECS, 2).plan
    assert by_text.step_bytes() == by_object.step_bytes() > 0
    assert tw.parse(f"{NAME}:levels=100").feedback == "residual"


def test_a_wrong_option_is_told() -> None:
    with pytest.raises(tw.ThinwireError, match="levels=128 does not fit a byte: take 1 to 127"):
        tw.parse(f"{NAME}:levels=128")
    with pytest.raises(tw.ThinwireError, match="a whole number from 1 to 127"):
        tw.parse(f"{NAME}:levels=many")
