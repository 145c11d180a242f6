"""The cells of TernGrad's Figure 5: images per second, digitised from the vectors of the authors' poster."""

from __future__ import annotations

from dataclasses import dataclass

from thinwire.perf.convnets import alexnet, googlenet, vgg_a
from thinwire.perf.network import LAST, Network

ETHERNET, INFINIBAND = "Ethernet", "InfiniBand"
FLOAT, TERNARY = "float", "ternary"
GPUS = tuple(2**k for k in range(10))
GPUS_A_NODE = 4
FITTED_UP_TO = 16  # GPUs: cells beyond are predicted, and judged

NETWORKS: dict[str, Network] = {network.name: network for network in (alexnet(), googlenet(), vgg_a())}
# Images a GPU and step. The paper says 128 for AlexNet; with the links of the other networks only 256 fits.
BATCHES = {"alexnet": 256, "googlenet": 64, "vgg-a": 32}
STATED_BATCHES = {**BATCHES, "alexnet": 128}
CLUSTERS = {
    ETHERNET: "128 nodes of 4 GTX 1080, PCI switch, 1 Gbit/s Ethernet",
    INFINIBAND: "128 nodes of 4 P100, NVLink, 100 Gbit/s InfiniBand",
}

_ROWS = {
    (ETHERNET, "alexnet", FLOAT): (394, 758, 1503, 719, 830, 1667, 3250, 6542, 13042, 25708),
    (ETHERNET, "alexnet", TERNARY): (387, 768, 1536, 2189, 3459, 6833, 13625, 26958, 53125, 99416),
    (ETHERNET, "googlenet", FLOAT): (174, 348, 692, 850, 1283, 2500, 4917, 9708, 19000, 36541),
    (ETHERNET, "googlenet", TERNARY): (174, 348, 696, 1231, 2327, 4458, 8792, 17167, 33167, 62541),
    (ETHERNET, "vgg-a", FLOAT): (95, 167, 318, 49, 53, 125, 208, 417, 833, 1667),
    (ETHERNET, "vgg-a", TERNARY): (89, 174, 351, 322, 420, 875, 1667, 3250, 6417, 12583),
    (INFINIBAND, "alexnet", FLOAT): (436, 867, 1734, 2786, 5301, 10349, 20403, 40707, 80922, 161548),
    (INFINIBAND, "alexnet", TERNARY): (427, 854, 1712, 3347, 6651, 13208, 26514, 52929, 105661, 211224),
    (INFINIBAND, "googlenet", FLOAT): (194, 388, 776, 1501, 2972, 5914, 11828, 23557, 46917, 93932),
    (INFINIBAND, "googlenet", TERNARY): (194, 388, 772, 1540, 3071, 6111, 12222, 24543, 48987, 97973),
    (INFINIBAND, "vgg-a", FLOAT): (108, 207, 410, 405, 720, 1282, 2661, 5126, 10251, 20304),
    (INFINIBAND, "vgg-a", TERNARY): (95, 194, 388, 716, 1410, 2760, 5520, 11138, 22177, 44256),
}


@dataclass(frozen=True)
class Cell:
    """One bar of the figure; `blur`: how far off digitising may be, in images per second."""

    cluster: str
    network: str
    wire: str
    gpus: int
    images_per_s: float

    @property
    def blur(self) -> float:
        """The resolution of the inset (up to 16 GPUs) and of the two large panels."""
        if self.gpus <= FITTED_UP_TO:
            return 3.0
        return 21.0 if self.cluster == ETHERNET else 49.0

    @property
    def nodes(self) -> int:
        return -(-self.gpus // GPUS_A_NODE)

    @property
    def gpus_a_node(self) -> int:
        return min(self.gpus, GPUS_A_NODE)

    @property
    def held_out(self) -> bool:
        return self.gpus > FITTED_UP_TO


def cells(cluster: str | None = None) -> list[Cell]:
    """All bars, or those of one cluster."""
    return [
        Cell(where, network, wire, gpus, value)
        for (where, network, wire), row in _ROWS.items()
        for gpus, value in zip(GPUS, row, strict=True)
        if cluster in (None, where)
    ]


def wire_bytes(network: Network, wire: str) -> float:
    """|g| as the paper counts it: 4 bytes an element, or 2 bits of all but the last layer, in both ways."""
    if wire == FLOAT:
        return 4.0 * network.numel
    last = sum(layer.numel for layer in network.layers if layer.kind == LAST)
    return 4.0 * last + (network.numel - last) / 4
