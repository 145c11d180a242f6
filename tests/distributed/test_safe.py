"""No run is lost under auto: means that are not finite where plain DDP's are never reach the weights."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any

import pytest
import torch
import torch.distributed as dist
from launch import Teams
from torch import Tensor, nn
from training import batch, descend, loss_of, mlp, wrap

import thinwire as tw
from thinwire.auto.autotuner import Autotuner
from thinwire.auto.qualities import QUALITIES, candidates
from thinwire.codecs.coder import Coder, Context, Merge, Packer
from thinwire.codecs.floats import FloatPacker, runs_of
from thinwire.exchange.packing import opened
from thinwire.hooks.selector import AutoSelector
from thinwire.tensors import Layout

PRICE = 3e5
FLAWED, BAD_STEP = "test_safe.Unscaled", 3


@dataclass(frozen=True)
class Unscaled(Coder):
    """A codec with a flaw, as thinwire's own fp16 once was: above 65,504 it gives Inf."""

    merge = Merge.SUM
    near_lossless = True

    def bind(self, layout: Layout, context: Context) -> Packer:
        return FloatPacker(torch.float16, runs_of(layout), context)


def pilot_of(compressor: tw.Compressor) -> Autotuner:
    assert isinstance(compressor.auto, AutoSelector)
    return compressor.auto.autotuner


def put_in_force(autotuner: Autotuner, codec: str) -> None:
    """As if the run had been resumed with this decision: no trial, nothing depends on how fast steps are."""
    decision = {"codec": codec, "step": 0, "why": "of the test", "measured_s": {codec: 1.0}}
    autotuner.load({"codec": codec, "step": 0, "decision": decision})


def regression(codec: str, steps: int, **options: Any) -> tuple[bool, float]:
    """House prices as they are: whether all parameters are finite at the end, and the loss there by that of
    the first step."""
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(20, 64), nn.ReLU(), nn.Linear(64, 65), nn.ReLU(), nn.Linear(65, 1))
    with wrap(net, "auto", **options) as it:
        assert it.compressor is not None
        if codec != "auto":
            put_in_force(pilot_of(it.compressor), codec)
        optimizer = torch.optim.Adam(it.model.parameters(), lr=0.01)
        losses = []
        for step in range(steps):
            x = batch(step, 20)
            loss = nn.functional.mse_loss(it.model(x), PRICE * (1 + 0.1 * x[:, :1]))
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(it.model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        assert codec == "auto" or pilot_of(it.compressor).codec == codec
        return bool(torch.isfinite(it.parameters()).all()), losses[-1] / losses[0]


def every_candidate(quality: str) -> dict[str, tuple[bool, float]]:
    return {codec: regression(codec, 6) for codec in ("dense", *candidates(quality))}


def trials() -> tuple[bool, float]:
    """Whatever auto tries and takes on a slow link."""
    return regression("auto", 40, link=tw.Link(rate="10mbit"))


@pytest.mark.parametrize("quality", QUALITIES)
def test_a_regression_on_raw_prices_ends_with_numbers(teams: Teams, quality: str) -> None:
    """Targets of 3e5: gradients are far above 65,504. No codec is vetoed for that."""
    for told in teams(2).run(every_candidate, quality):
        for codec, (finite, loss) in told.items():
            assert finite, codec
            assert loss < 2, codec


def test_it_ends_with_numbers_whatever_is_tried(teams: Teams) -> None:
    for finite, loss in teams(2).run(trials):
        assert finite
        assert loss < 2


def vetoed_run(ddp: dict[str, Any]) -> dict[str, Any]:
    """A codec that overflows in one bucket of one step, where one rank has large gradients."""
    with wrap(mlp(), "auto", ddp=ddp) as it:
        assert it.compressor is not None
        autotuner = pilot_of(it.compressor)
        put_in_force(autotuner, FLAWED)
        codecs, differences = [], []
        for step in range(BAD_STEP + 3):
            x = batch(step, 20)
            if step == BAD_STEP and dist.get_rank() == 1:
                x *= 3e4
            plain = nn.parallel.DistributedDataParallel(copy.deepcopy(it.model.module))
            loss_of(plain(x)).backward()
            loss_of(it.model(x)).backward()
            codecs.append(autotuner.codec)
            differences.append(difference(it.model, plain))
            descend(it.model, 1e-9)
        return {
            "codecs": codecs,
            "differences": differences,
            "parameters": it.parameters(),
            "report": str(it.compressor.report()),
            "state": opened(it.compressor.state_dict(gather=True), rank=0)["auto"],
        }


def difference(model: nn.Module, plain: nn.Module) -> float:
    """Of the gradients, as a part of the largest; not finite if one of them is not."""

    def grads(net: nn.Module) -> Tensor:
        return torch.cat([p.grad.flatten() for p in net.parameters() if p.grad is not None])

    wanted = grads(plain)
    return float((grads(model) - wanted).abs().max() / wanted.abs().max())


@pytest.mark.parametrize("as_views", [False, True])
def test_a_codec_whose_mean_is_not_finite_is_vetoed_and_its_step_sent_again(
    teams: Teams, as_views: bool
) -> None:
    first, second = teams(2).run(vetoed_run, {"gradient_as_bucket_view": as_views})
    assert first["codecs"] == second["codecs"] == [FLAWED] * (BAD_STEP + 1) + ["dense"] * 2
    assert torch.equal(first["parameters"], second["parameters"])
    assert max(first["differences"]) < 2**-9
    assert f"never {FLAWED} again, in step {BAD_STEP}" in first["report"]
    assert first["state"]["vetoed"] == {FLAWED: BAD_STEP}


def poisoned_run() -> tuple[list[str], list[bool]]:
    """A gradient that is not finite on one rank: no codec's fault."""
    with wrap(mlp(), "auto") as it:
        assert it.compressor is not None
        autotuner = pilot_of(it.compressor)
        put_in_force(autotuner, "qsgd:4")
        codecs, finite = [], []
        for step in range(4):
            x = batch(step, 20)
            if step == 1 and dist.get_rank() == 1:
                x[0, 0] = torch.nan
            loss_of(it.model(x)).backward()
            codecs.append(autotuner.codec)
            finite.append(
                all(bool(p.grad.isfinite().all()) for p in it.model.parameters() if p.grad is not None)
            )
            it.model.zero_grad()
        return codecs, finite


def test_a_gradient_that_is_not_finite_is_nobodys_fault(teams: Teams) -> None:
    for codecs, finite in teams(2).run(poisoned_run):
        assert codecs == ["qsgd:4"] * 4
        assert finite == [True, False, True, True]


def quality_run(name: str) -> tuple[str, str, tuple[str, ...]]:
    """What an optimizer means for the quality of auto."""
    net = mlp()
    model = nn.parallel.DistributedDataParallel(net)
    groups = [{"params": net[0].parameters(), "lr": 0.1}, {"params": net[2].parameters(), "lr": 0.2}]
    optimizer = getattr(torch.optim, name)(groups, lr=0.1)
    with tw.compress(model, "auto", optimizer=optimizer) as compressor:
        autotuner = pilot_of(compressor)
        return autotuner.quality, str(compressor.report()), autotuner.choices


def test_the_default_quality_is_what_was_shown_for_the_optimizer(teams: Teams) -> None:
    for quality, report, choices in teams(2).run(quality_run, "SGD"):
        assert quality == "SGD"
        assert {"terngrad:1", "fft:0.85"} <= set(choices)
        assert 'quality "SGD": its codecs keep their accuracy under SGD' in report
    for quality, report, choices in teams(2).run(quality_run, "AdamW"):
        assert quality == "Adam"
        assert not {"terngrad:1", "fft:0.85", "rotated"} & set(choices)
        assert "their accuracy under Adam" in report
    for quality, report, choices in teams(2).run(quality_run, "Adagrad"):
        assert quality == "safe"
        assert not {"terngrad:1", "fft:0.85", "rotated"} & set(choices)
        assert "do to Adagrad was not studied" in report


def vetoed_by_nodes() -> tuple[list[str], list[bool], str]:
    """The same where leaders exchange for two workers each; one worker that leads nobody is at the root."""
    with wrap(mlp(), "auto", hierarchy=2) as it:
        assert it.compressor is not None
        autotuner = pilot_of(it.compressor)
        autotuner.choices += (f"{FLAWED} by nodes",)
        put_in_force(autotuner, f"{FLAWED} by nodes")
        codecs, finite = [], []
        for step in range(BAD_STEP + 2):
            x = batch(step, 20)
            if step == BAD_STEP and dist.get_rank() == 3:
                x *= 3e5
            loss_of(it.model(x)).backward()
            codecs.append(autotuner.codec)
            finite.append(
                all(bool(p.grad.isfinite().all()) for p in it.model.parameters() if p.grad is not None)
            )
            it.model.zero_grad()
        return codecs, finite, str(it.compressor.report())


def test_a_codec_is_vetoed_by_nodes_too(teams: Teams) -> None:
    answers = teams(4).run(vetoed_by_nodes)
    for codecs, finite, report in answers:
        assert codecs == [f"{FLAWED} by nodes"] * (BAD_STEP + 1) + ["dense"]
        assert all(finite)
        assert f"never {FLAWED} again" in report
