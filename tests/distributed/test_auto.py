"""Auto on real ranks: all switch at the same step, nothing is lost, and dense is DDP's own way."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from failing import failure_of
from launch import Teams
from own_clock import OTHERS, own_clock
from torch import Tensor, nn
from training import Wrapped, batch, descend, few_steps, fit, loss_of, mlp, wrap

import thinwire as tw

LINK = tw.Link(rate="40gbit")  # emulated: dense steps go thinwire's way
SLOW = {"dense": 0.1, "topk:0.01": 0.02, OTHERS: 0.05}  # seconds of a step on a slow link, by codec
STEPS = 32  # with few of each kind auto has decided by then


def wide() -> nn.Sequential:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 120), nn.ReLU(), nn.Linear(120, 10))


def auto_run(steps: int, quality: str) -> tuple[list[str], Tensor, str]:
    """The codec of every step, the parameters at the end, and the report."""
    with wrap(wide(), "auto", quality=quality) as it:
        return steps_of(it, steps)


def steps_of(it: Wrapped, steps: int) -> tuple[list[str], Tensor, str]:
    assert it.compressor is not None
    codecs = []
    for step in range(steps):
        fit(it.model, 1, step)
        codecs.append(str(it.compressor.report().codec))
    return codecs, it.parameters(), str(it.compressor.report())


def slow_run() -> tuple[list[str], Tensor, str]:
    """On a link on which a codec is quicker."""
    with few_steps(), wrap(wide(), "auto", quality="aggressive", link=LINK) as it, own_clock(it, SLOW):
        return steps_of(it, STEPS)


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
    assert codecs[-1] == "auto (topk:0.01)", report
    assert len(set(codecs)) > 2  # others were tried
    assert "from step" in report
    assert "with plain DDP" in report


@pytest.mark.parametrize("num_ranks", [2, 3])
def test_exact_is_plain_ddp_bit_for_bit(teams: Teams, num_ranks: int) -> None:
    """Also where 1/N is no power of two: DDP multiplies by it."""
    codecs, parameters, report = teams(num_ranks).run(auto_run, 5, "exact")[0]
    assert set(codecs) == {"auto (dense)"}
    assert torch.equal(parameters, teams(num_ranks).run(plain_run, 5)[0])
    assert "5 steps" in report
    assert "1.00x fewer" in report


def test_a_worker_alone_trains_on(teams: Teams) -> None:
    ((codecs, parameters, report),) = teams(1).run(auto_run, 14, "aggressive")
    assert set(codecs) == {"auto (dense)"}
    assert torch.equal(parameters, teams(1).run(plain_run, 14)[0])
    assert "a worker alone has nothing to send" in report


def bad_call(codec: str, options: dict[str, Any]) -> Any:
    return failure_of(lambda: wrap(mlp(), codec, **options))


@pytest.mark.parametrize(
    ("codec", "options", "sentence"),
    [
        ("auto", {"quality": "best"}, 'no quality "best": known are exact, safe'),
        ("auto", {"feedback": "residual"}, 'feedback= belongs to a codec, and codec="auto" chooses those'),
        ("terngrad", {"quality": "safe"}, 'quality= says what codec="auto" may take'),
    ],
)
def test_what_does_not_fit_auto_is_refused(
    teams: Teams, codec: str, options: dict[str, Any], sentence: str
) -> None:
    for answer in teams(2).run(bad_call, codec, options):
        assert sentence in answer.text


def stop_and_resume() -> tuple[bool, list[str], list[str]]:
    """Trains until it has decided, saves, and goes on twice: on the same link and on a much quicker one."""
    with few_steps():
        with wrap(wide(), "auto", quality="aggressive") as it, own_clock(it, SLOW, link_s=0.2):
            assert it.compressor is not None
            fit(it.model, STEPS)
            decided = it.compressor.decided
            state = it.compressor.state_dict(gather=True)
        runs = []
        for link_s in (0.2, 0.01):
            with wrap(wide(), "auto", quality="aggressive") as it, own_clock(it, SLOW, link_s):
                assert it.compressor is not None
                it.compressor.load_state_dict(state)
                runs.append(steps_of(it, 3)[0])
    return decided, runs[0], runs[1]


def test_a_resumed_run_replays_its_decision_unless_the_link_is_another(teams: Teams) -> None:
    for decided, same, other in teams(2).run(stop_and_resume):
        assert decided
        assert set(same) == {"auto (topk:0.01)"}
        assert set(other) == {"auto (dense)"}


def scaled_run() -> tuple[list[str], bool]:
    """GradScaler skips some steps, some of them right after a switch."""
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    options: dict[str, Any] = {"quality": "aggressive", "grad_scaler": scaler, "link": LINK}
    with few_steps(), wrap(wide(), "auto", **options) as it, own_clock(it, SLOW):
        assert it.compressor is not None
        optimizer = torch.optim.SGD(it.model.parameters(), lr=0.05)
        codecs = []
        for step in range(STEPS):
            loss = loss_of(it.model(batch(step, 20)))
            if step % 4 == 3:
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
    assert answers[0][0][-1] == "auto (topk:0.01)"
    assert all(finite for _, finite in answers)


def unequal_run() -> list[str]:
    """Inputs run out on one rank (Join) while codecs are tried."""
    two = {**SLOW, "qsgd:4": 0.025}  # two that are worth a trial
    with few_steps(), wrap(wide(), "auto", quality="aggressive", link=LINK) as it, own_clock(it, two):
        assert it.compressor is not None
        codecs = []
        with it.model.join():
            for step in range(9 + 13 * torch.distributed.get_rank()):
                loss_of(it.model(batch(step, 20))).backward()
                descend(it.model)
                codecs.append(it.compressor.report().codec)
        return codecs


def test_ranks_that_run_out_of_inputs_take_part(teams: Teams) -> None:
    first, second = teams(2).run(unequal_run)
    assert second[: len(first)] == first
    assert len(set(second)) > len(set(first)) > 1  # codecs are tried before inputs run out, and after


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
