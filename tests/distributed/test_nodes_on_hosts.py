"""Two hosts with two workers each: what crosses between them, by the counters of the kernel."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from hosts import HostServers
from launch import Team
from torch import nn
from training import batch, descend, loss_of, wrap

from thinwire.lab.net.counters import read_counters
from thinwire.lab.net.netlab import available

OBSTACLE = available()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=f"netlab cannot run here: {OBSTACLE}")

STEPS = 5
NOISE_BYTES = 10_000  # acknowledgements, the headers of gloo's messages, two barriers


@pytest.fixture(scope="module")
def team() -> Iterator[Team]:
    with HostServers(2, per_host=2) as servers, Team(servers, 4) as made:
        yield made


def crossing(codec: str, hierarchy: str | int) -> tuple[int, float, int, torch.Tensor]:
    """Bytes that left this worker's host in some steps, and by its report; workers in a node, parameters."""
    torch.manual_seed(7)
    net = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 256), nn.ReLU(), nn.Linear(256, 10))
    with wrap(net, codec, {"bucket_cap_mb": 25}, hierarchy=hierarchy, check_every=0) as it:
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
