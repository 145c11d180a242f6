"""The digest of a model's parameters, the same on all ranks or an error."""

from __future__ import annotations

import hashlib

import torch
import torch.distributed as dist
from torch import nn

from thinwire.errors import LabError


def agreed_digest(net: nn.Module) -> str:
    """SHA-256 of all parameters, after comparing it with the other ranks'."""
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    mine = torch.tensor(list(digest.digest()), dtype=torch.uint8)
    digests = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(digests, mine)
    for rank, other in enumerate(digests):
        if not torch.equal(other, digests[0]):
            raise LabError(
                f"worker {rank} ended with other parameters than worker 0: please report this as a bug"
            )
    return digest.hexdigest()
