"""Reusable buffers: fresh large allocations cost more (page faults) than decoding into them."""

from __future__ import annotations

import torch
from torch import Tensor


class Scratch:
    """Named buffers that grow and are handed out again; one exchange at a time may use them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, nbytes: int) -> Tensor:
        """The first `nbytes` bytes of the buffer of that name; what is in them is undefined."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < nbytes:
            buffer = self._buffers[name] = torch.empty(
                max(nbytes, 64), dtype=torch.uint8, device=self._device
            )
        return buffer[:nbytes]

    @property
    def nbytes(self) -> int:
        return sum(buffer.numel() for buffer in self._buffers.values())
