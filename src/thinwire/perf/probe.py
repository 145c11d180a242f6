"""A probe: measures the link of a real group, and the codecs on the machines it runs on."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from thinwire.groups.base import Group
from thinwire.perf import codec_probe, link_probe
from thinwire.perf.calibration import Calibration
from thinwire.perf.codec_probe import probe_codecs
from thinwire.perf.link_probe import probe_link

__all__ = ["probe", "probe_codecs", "probe_link"]


def probe(
    group: Group,
    device: torch.device,
    codecs: Sequence[str],
    numel: int = codec_probe.NUMEL,
    seconds: float = link_probe.SECONDS + codec_probe.SECONDS,
    company: bool = True,
) -> Calibration:
    """Collective, called by one thread of every rank of a connected group: the same numbers on all ranks.

    >>> from thinwire.groups.thread import run_ranks
    >>> cpu = torch.device("cpu")
    >>> made = run_ranks(2, lambda group: probe(group, cpu, ["terngrad"], numel=90_000, seconds=0.2))
    >>> made[0] == made[1], sorted(made[0].speeds)
    (True, ['dense', 'dense sharded', 'terngrad'])
    """
    linked = probe_link(group, device, seconds / 2, company)
    speeds, contends = probe_codecs(group, device, codecs, numel, seconds / 2)
    return linked.with_speeds(speeds, contends)
