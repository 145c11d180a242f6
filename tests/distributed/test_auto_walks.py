"""Auto on nets and ranks that are not like the others, and on a rank that dies while DDP sends."""

from __future__ import annotations

import signal
from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from failing import IN_BACKWARD, Met, failure_of, signalled
from launch import Gone, NewTeam, Teams
from own_clock import OTHERS, own_clock
from rank import Failure
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from training import few_steps, fit, mlp, normed, wrap
from unequal import THREADS

import thinwire as tw
from thinwire.hooks import failures as plain_way

LINK = tw.Link(rate="40gbit")  # emulated: dense steps go thinwire's way
SLOW = {"dense": 0.1, "topk:0.01": 0.02, OTHERS: 0.05}  # seconds of a step, by codec
MOST = 40  # steps; with few of each kind auto has decided by then


class Tied(nn.Module):
    """Two layers that share one weight, as embeddings and heads do."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.there, self.back = nn.Linear(20, 400), nn.Linear(20, 400)
        self.middle, self.last = nn.Linear(400, 20), nn.Linear(400, 10)
        self.back.weight = self.there.weight

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.last(self.back(self.middle(self.there(x).relu())).relu())
        return y


def frozen() -> nn.Module:
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(20, 100), nn.ReLU(), nn.Linear(100, 120), nn.ReLU(), nn.Linear(120, 10))
    net[0].requires_grad_(False)
    return net


def walk(build: Callable[[], nn.Module]) -> tuple[list[str], Tensor, Tensor, Tensor]:
    """The codec of every step until auto has decided; all parameters, the first weight before and behind.

    The ranks have unequal numbers of threads.
    """
    torch.set_num_threads(THREADS[dist.get_rank()])
    try:
        net = build()
        first = next(net.parameters()).detach().clone()
        with (
            few_steps(),
            wrap(net, "auto", link=LINK, quality="aggressive", check_every=1) as it,
            own_clock(it, SLOW),
        ):
            assert it.compressor is not None
            codecs: list[str] = []
            while len(codecs) < MOST and not (codecs and it.compressor.decided):
                fit(it.model, 1, len(codecs))
                codecs.append(it.compressor.report().codec)
            return codecs, it.parameters(), first, next(net.parameters()).detach().clone()
    finally:
        torch.set_num_threads(1)


@pytest.mark.parametrize("build", [Tied, frozen])
def test_tied_weights_and_frozen_layers_on_ranks_with_unequal_threads(
    teams: Teams, build: Callable[[], nn.Module]
) -> None:
    """Parameters are compared after every step (`check_every`): they stay equal through all switches."""
    (codecs, parameters, before, behind), other = teams(2).run(walk, build)
    assert other[0] == codecs
    assert torch.equal(other[1], parameters)
    assert torch.isfinite(parameters).all()
    assert len(set(codecs)) > 2  # codecs were tried
    assert codecs[-1] == "auto (topk:0.01)"
    assert torch.equal(before, behind) == (build is frozen)


def killed(victim: int) -> Met:
    return signalled(signal.SIGKILL, victim, IN_BACKWARD, "auto", {})


def test_a_worker_that_is_killed_while_gradients_go_by_ddp_ends_all_others(new_team: NewTeam) -> None:
    answers = new_team(3).answers(killed, 1)
    assert answers[1] == Gone()
    for rank in (0, 2):
        met = answers[rank]
        assert isinstance(met, Met), met
        for failure in (met.first, *met.later):
            assert "rank 1 closed the connection or died" in failure.text, failure.trace


def leaves_early(victim: int, how: str, codec: str, build: Callable[[], nn.Module]) -> Failure | None:
    """The victim is done after two steps, and its process lives on; the others train on."""
    model = DistributedDataParallel(build())
    compressor = tw.compress(model, codec)
    plain_way.LEFT_S = 0.3
    fit(model, 2)
    if dist.get_rank() != victim:
        return failure_of(lambda: fit(model, 2))
    if how == "close":
        compressor.close()
    return None


LEAVING: dict[str, tuple[int, str, str, Callable[[], nn.Module]]] = {
    "all-reduce of gradients": (1, "close", "auto", mlp),
    "all-reduce of gradients, model collected": (1, "collected", "auto", mlp),
    "broadcast of buffers": (0, "close", "terngrad", normed),
}


@pytest.mark.parametrize("met", LEAVING)
def test_a_rank_that_leaves_and_lives_on_is_named(new_team: NewTeam, met: str) -> None:
    """DDP's own collectives waited for it as long as its process lived: all ranks alive, and no error."""
    victim = LEAVING[met][0]
    answers = new_team(3).run(leaves_early, *LEAVING[met])
    assert answers.pop(victim) is None
    for failure in answers:
        assert failure.kinds[0] == "PeerError", failure.trace
        assert f"rank {victim} takes part no more" in failure.text
