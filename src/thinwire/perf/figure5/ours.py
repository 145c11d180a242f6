"""Ours: what the model says of thinwire's wire formats on the paper's clusters, up to 10,000 workers.

The clusters are the fitted ones (their latency from one 512-GPU cell). The exchange is thinwire's: exact
bytes from its plans, buckets that overlap with the backward pass, codecs on the GPU at assumed speeds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from thinwire.perf.figure5.cells import ETHERNET, GPUS_A_NODE, NETWORKS
from thinwire.perf.figure5.fit import Cluster
from thinwire.perf.forecast import DENSE, Forecast, Setting, forecast
from thinwire.perf.link import Link, Topology, link_named
from thinwire.perf.network import device_named

CODECS = (DENSE, "fp16", "terngrad", "qsgd:4", "gradiveq:8,layers=all", "fft:0.85", "topk:0.01")
NODES = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2500)
_DEVICES = {ETHERNET: "gtx1080"}


@dataclass(frozen=True)
class Curve:
    """One codec on one cluster and network: a forecast for each number of nodes."""

    cluster: str
    network: str
    codec: str
    forecasts: tuple[Forecast, ...]


def curves(
    clusters: dict[str, Cluster], codecs: Sequence[str] = CODECS, nodes: Sequence[int] = NODES
) -> list[Curve]:
    """All codecs on both clusters and all three networks."""
    return [
        Curve(
            cluster.name,
            name,
            codec,
            tuple(forecast(codec, setting_of(cluster, name, count)) for count in nodes),
        )
        for cluster in clusters.values()
        for name in NETWORKS
        for codec in codecs
    ]


def setting_of(cluster: Cluster, network: str, nodes: int) -> Setting:
    """The fitted cluster in the model's own nouns; staging, paid once a byte, is part of the bandwidth."""
    inter_s = cluster.network + cluster.staging / 2
    default = link_named("1gbit" if cluster.name == ETHERNET else "ib100")
    inter = Link(f"fitted {cluster.name}", cluster.latency_s, 1 / inter_s, default.message_s, "fitted")
    intra = Link("fitted bus", 10e-6, 1 / cluster.inside, 1e-6, "fitted; 10 us assumed")
    device = device_named(_DEVICES.get(cluster.name, "p100"))
    batch = cluster.batches[network]
    return Setting.of(
        NETWORKS[network].with_batch(batch),
        Topology(nodes, GPUS_A_NODE, inter, intra),
        device,
        batch / cluster.compute_s[network],
    )
