"""Comparing what all ranks of a group must have in common, before any message whose size depends on it."""

from __future__ import annotations

import torch

from thinwire.errors import PlanError
from thinwire.groups.base import Group


def compare_digests(group: Group, digest: bytes, what: str, device: torch.device) -> None:
    """A fixed-size exchange: all ranks raise, or none."""
    mine = torch.frombuffer(bytearray(digest), dtype=torch.uint8).to(device)
    everyone = torch.empty(group.size, mine.numel(), dtype=torch.uint8, device=device)
    group.all_gather(mine, everyone).wait()
    differing = [rank for rank in range(group.size) if not torch.equal(everyone[rank], everyone[0])]
    if differing:
        raise PlanError(
            f"ranks disagree on their {what}: rank {group.global_rank(0)} and rank "
            f"{', '.join(str(group.global_rank(rank)) for rank in differing)} differ; "
            "build the same model and pass the same codec on every rank"
        )
