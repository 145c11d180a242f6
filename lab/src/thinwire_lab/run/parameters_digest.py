"""The digest of a model's parameters, the same on all ranks or an error."""

from __future__ import annotations

import hashlib

from torch import nn

from thinwire.errors import LabError
from thinwire_lab.run.peers import Peers


def agreed_digest(net: nn.Module, peers: Peers) -> str:
    """SHA-256 of all parameters, after comparing it with the other ranks'."""
    digest = hashlib.sha256()
    for parameter in net.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    digests = peers.everyones(digest.digest())
    for rank, other in enumerate(digests):
        if other != digests[0]:
            raise LabError(
                f"worker {rank} ended with other parameters than worker 0: please report this as a bug"
            )
    return digest.hexdigest()
