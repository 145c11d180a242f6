"""Auto on real ranks: all switch at the same step, nothing is lost, and dense is DDP's own way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from failing import failure_of
from launch import Teams
from torch import Tensor, nn
from training import batch, descend, few_steps, fit, loss_of, mlp, wrap

import thinwire as tw
from thinwire.auto import pilot

SLOW = "10mbit"  # makes a dense step of the net below about 140 ms longer: busy cores hardly matter then
STEPS = 70


def wide() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 120), nn.ReLU(), nn.Linear(120, 10))


def auto_run(steps: int, rate: str | None, quality: str) -> tuple[list[str], Tensor, str]:
    """The codec of every step, the parameters at the end, and the report."""
    link = None if rate is None else tw.Link(rate=rate)
    with wrap(wide(), "auto", link=link, quality=quality) as it:
        assert it.compressor is not None
        codecs = []
        for step in range(steps):
            fit(it.model, 1, step)
            codecs.append(str(it.compressor.report().codec))
        return codecs, it.parameters(), str(it.compressor.report())


def slow_run() -> tuple[list[str], Tensor, str]:
    """On a link so slow that whatever else the cores do, a codec is quicker."""
    with few_steps():
        return auto_run(32, "3mbit", "aggressive")


def plain_run(steps: int) -> Tensor:
    with wrap(wide(), None) as it:
        fit(it.model, steps)
        return it.parameters()


def test_on_a_slow_link_all_ranks_take_the_same_codec_at_the_same_step(teams: Teams) -> None:
    answers = teams(2).run(slow_run)
    codecs, parameters, report = answers[0]
    assert answers[1][0] == codecs
    assert torch.equal(answers[1][1], parameters)
    assert torch.isfinite(parameters).all()
    assert codecs[0] == "auto (dense)"
    assert codecs[-1] != "auto (dense)", report
    assert "from step" in report
    assert "with plain DDP" in report


def test_exact_is_plain_ddp_bit_for_bit(teams: Teams) -> None:
    (codecs, parameters, report), _ = teams(2).run(auto_run, 5, None, "exact")
    assert set(codecs) == {"auto (dense)"}
    assert torch.equal(parameters, teams(2).run(plain_run, 5)[0])
    assert "5 steps" in report
    assert "1.00x fewer" in report


def test_a_worker_alone_trains_on(teams: Teams) -> None:
    ((codecs, parameters, report),) = teams(1).run(auto_run, 14, None, "aggressive")
    assert set(codecs) == {"auto (dense)"}
    assert torch.equal(parameters, teams(1).run(plain_run, 14)[0])
    assert "a worker alone has nothing to send" in report


def bad_call(codec: str, options: dict[str, Any]) -> Any:
    return failure_of(lambda: wrap(mlp(), codec, **options))


@pytest.mark.parametrize(
    ("codec", "options", "sentence"),
    [
        ("auto", {"quality": "best"}, 'no quality "best": known are exact, safe'),
        ("auto", {"memory": "residual"}, 'memory= belongs to a codec, and codec="auto" chooses those'),
        ("terngrad", {"quality": "safe"}, 'quality= says what codec="auto" may take'),
    ],
)
def test_what_does_not_fit_auto_is_refused(
    teams: Teams, codec: str, options: dict[str, Any], sentence: str
) -> None:
    for answer in teams(2).run(bad_call, codec, options):
        assert sentence in answer.text


def stop_and_resume(quality: str, rate: str, other_rate: str) -> tuple[bool, list[str], list[str]]:
    """Trains until it has decided, saves, and goes on twice: on the same link and on another."""
    with wrap(wide(), "auto", link=tw.Link(rate=rate), quality=quality) as it:
        assert it.compressor is not None
        fit(it.model, STEPS)
        decided = it.compressor.decided
        state = it.compressor.state_dict(gather=True)
    runs = []
    for link in (rate, other_rate):
        with wrap(wide(), "auto", link=tw.Link(rate=link), quality=quality) as it:
            assert it.compressor is not None
            it.compressor.load_state_dict(state)
            codecs = []
            for step in range(3):
                fit(it.model, 1, STEPS + step)
                codecs.append(it.compressor.report().codec)
            runs.append(codecs)
    return decided, runs[0], runs[1]


def test_a_resumed_run_replays_its_decision_unless_the_link_is_another(teams: Teams) -> None:
    for decided, same, other in teams(2).run(stop_and_resume, "aggressive", SLOW, "2gbit"):
        assert decided
        assert len(set(same)) == 1
        assert same[0] != "auto (dense)"
        assert set(other) == {"auto (dense)"}


def scaled_run() -> tuple[list[str], bool]:
    """GradScaler skips some steps, one of them right after a switch."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    with wrap(wide(), "auto", link=tw.Link(rate=SLOW), quality="aggressive", grad_scaler=scaler) as it:
        assert it.compressor is not None
        optimizer = torch.optim.SGD(it.model.parameters(), lr=0.05)
        codecs = []
        for step in range(STEPS):
            loss = loss_of(it.model(batch(step, 20)))
            if step % 6 == 5:
                loss = loss * float("inf")
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            codecs.append(it.compressor.report().codec)
        return codecs, bool(torch.isfinite(it.parameters()).all())


def test_steps_that_are_skipped_do_not_disturb_it(teams: Teams) -> None:
    answers = teams(2).run(scaled_run)
    assert answers[0][0] == answers[1][0]
    assert all(finite for _, finite in answers)


def unequal_run() -> list[str]:
    """Inputs run out on one rank (Join) while codecs are tried."""
    with wrap(wide(), "auto", link=tw.Link(rate=SLOW), quality="aggressive") as it:
        assert it.compressor is not None
        codecs = []
        with it.model.join():
            for step in range(30 + 10 * torch.distributed.get_rank()):
                loss_of(it.model(batch(step, 20))).backward()
                descend(it.model)
                codecs.append(it.compressor.report().codec)
        return codecs


def test_ranks_that_run_out_of_inputs_take_part(teams: Teams) -> None:
    first, second = teams(2).run(unequal_run)
    assert second[: len(first)] == first
    assert len(set(second)) > 1
    assert len(first) > pilot.WARM_UP + pilot.DENSE_STEPS


def checked_run(steps: int) -> int:
    """Parameters are compared after every step, and change right behind it."""
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(20, 900), nn.ReLU(), nn.Linear(900, 900), nn.ReLU(), nn.Linear(900, 10))
    with wrap(net, "auto", quality="exact", check_every=1) as it:
        assert it.compressor is not None
        fit(it.model, steps)
        it.compressor.wait()
        return it.compressor.report().steps


def test_drift_is_looked_for_while_nobody_changes_parameters(teams: Teams) -> None:
    """The thread of thinwire compared parameters in the middle of an update: nobody waited for it."""
    assert teams(2).run(checked_run, 25) == [25, 25]
