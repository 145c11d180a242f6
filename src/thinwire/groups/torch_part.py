"""Some ranks of a group over torch.distributed, with a process group of their own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch.distributed as dist

from thinwire.groups.base import Confession, Group
from thinwire.groups.collectives import Collectives


class TorchPart(Collectives):
    """Lives and fails with the whole: it has no witness, and its process group is closed by the whole."""

    def __init__(
        self, whole: Group, rank: int, ranks: Sequence[int], process_group: dist.ProcessGroup
    ) -> None:
        super().__init__(rank, ranks)
        self._whole, self._made, self.process_group = whole, process_group, process_group

    def confess(self, confession: Confession) -> Mapping[int, Confession | None]:
        return self._whole.confess(confession)

    def abort(self) -> None:
        self._whole.abort()

    def close(self) -> None:
        """The whole closes it."""
