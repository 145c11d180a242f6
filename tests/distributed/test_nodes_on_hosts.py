"""Two hosts with two workers each: what crosses, by the kernel's counters, and what auto takes."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hosts import HostServers
from launch import Team
from own_clock import own_clock
from torch import nn
from training import Wrapped, batch, descend, few_steps, loss_of, wrap

from thinwire.hooks.selector import AutoSelector
from thinwire_lab.net.iproute import read_counters
from thinwire_lab.net.netlab import available

OBSTACLE = available()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=f"netlab cannot run here: {OBSTACLE}")

STEPS = 5
NOISE_BYTES = 10_000  # acknowledgements, the headers of gloo's messages, two barriers


SLOW = "20mbit"  # a dense step takes 0.6 s then
TABLE = {"dense": 0.1, "fp16": 0.06, "fp16 by nodes": 0.03}  # seconds of a step under a clock of our own


@pytest.fixture(scope="module")
def servers() -> Iterator[HostServers]:
    with HostServers(2, per_host=2) as made:
        yield made


@pytest.fixture(scope="module")
def team(servers: HostServers) -> Iterator[Team]:
    with Team(servers, 4) as made:
        yield made


def net() -> nn.Module:
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))


def crossing(codec: str, hierarchy: str | int) -> tuple[int, float, int, torch.Tensor]:
    """Bytes that left this worker's host in some steps, and by its report; workers in a node, parameters."""
    with wrap(net(), codec, {"bucket_cap_mb": 25}, hierarchy=hierarchy, check_every=0) as it:
        assert it.compressor is not None
        for step in range(STEPS + 3):
            if step == 3:  # DDP has rebuilt its buckets
                dist.barrier()
                before, told = read_counters().tx_payload_bytes, it.compressor.report()
            loss_of(it.model(batch(step, 256))).backward()
            descend(it.model)
        dist.barrier()
        sent, report = read_counters().tx_payload_bytes - before, it.compressor.report()
        reported = report.bytes_per_step * report.steps - told.bytes_per_step * told.steps
        return sent, reported, report.per_node, it.parameters()


def test_only_what_leaders_compressed_leaves_a_host(team: Team) -> None:
    flat, nested = team.run(crossing, "terngrad", "off"), team.run(crossing, "terngrad", "auto")
    assert [per_node for *_, per_node, _ in nested] == [2] * 4
    assert all(torch.equal(parameters, nested[0][3]) for *_, parameters in nested)
    for leader, member in ((0, 1), (2, 3)):
        sent, reported, *_ = nested[leader]
        assert nested[member][1] == 0
        assert reported <= sent <= reported + NOISE_BYTES
        assert flat[leader][0] > 1.8 * sent


def auto_by_itself(most: int, timed: bool) -> tuple[list[str], str, torch.Tensor, str]:
    """Few steps of each kind until auto has decided: the codecs of all steps, what it says, a resume."""
    ddp = {"bucket_cap_mb": 25}
    with contextlib.ExitStack() as stack:
        stack.enter_context(few_steps())
        it = stack.enter_context(wrap(net(), "auto", ddp, quality="safe", check_every=0))
        if not timed:
            stack.enter_context(own_clock(it, TABLE))
        assert it.compressor is not None
        course = it.compressor.auto
        assert isinstance(course, AutoSelector)
        assert "fp16 by nodes" in course.autotuner.choices
        course.autotuner.choices = ("fp16", "fp16 by nodes")  # one codec, which of its ways is the question
        codecs: list[str] = []
        while not it.compressor.decided and len(codecs) < most:
            train(it, len(codecs), codecs)
        train(it, len(codecs), codecs)
        said, parameters = str(it.compressor.report()), it.parameters()
        state = it.compressor.state_dict(gather=True)
    with contextlib.ExitStack() as stack:
        it = stack.enter_context(wrap(net(), "auto", ddp, quality="safe", check_every=0))
        if not timed:
            stack.enter_context(own_clock(it, TABLE))
        assert it.compressor is not None
        it.compressor.load_state_dict(state)
        again: list[str] = []
        train(it, len(codecs), again)
    return codecs, said, parameters, again[0]


def train(it: Wrapped, step: int, codecs: list[str]) -> None:
    assert it.compressor is not None
    loss_of(it.model(batch(step, 256))).backward()
    descend(it.model)
    codecs.append(it.compressor.report().codec)


def check_by_nodes(team: Team, timed: bool) -> None:
    """Nobody said so: all workers of both hosts take the same at the same step, and again on a resume."""
    answers = team.run(auto_by_itself, 60, timed)
    codecs, said, parameters, resumed = answers[0]
    assert "by nodes" in codecs[-1], said
    assert resumed == codecs[-1]
    assert "hierarchy: 2 nodes of 2 workers" in said
    assert {"auto (dense)"} < {codec for codec in codecs if "by nodes" not in codec}  # both ways were tried
    for other, _, theirs, again in answers[1:]:
        assert (other, again) == (codecs, resumed)
        assert torch.equal(theirs, parameters)


def test_auto_goes_by_nodes_where_that_is_quickest(team: Team) -> None:
    check_by_nodes(team, timed=False)


@pytest.mark.timing
def test_auto_goes_by_nodes_where_hosts_are_far_apart(servers: HostServers, team: Team) -> None:
    servers.lab.set_rate(SLOW)
    check_by_nodes(team, timed=True)
