"""Whether a thread stands still in a collective of torch.distributed or of DDP's forward pass."""

from __future__ import annotations

import os
import sys
import time
from types import FrameType

import torch.distributed as dist

_COLLECTIVES = os.path.join("torch", "distributed", "distributed_c10d.py")
_DDP = os.path.join("torch", "nn", "parallel", "distributed.py")


class Standstill:
    """Looks at a thread now and then; it stands still if it is found at the same line for `after_s`."""

    def __init__(self, thread: int, after_s: float) -> None:
        self._thread, self._after_s = thread, after_s
        self._place: tuple[int, int] | None = None
        self._since = 0.0

    def waits_for(self, rank: int) -> bool:
        """Whether it has stood still in a collective in which global rank `rank` takes part."""
        frame = sys._current_frames().get(self._thread)
        if frame is None or not _in_collective_with(frame, rank):
            self._place = None
            return False
        place = id(frame), frame.f_lasti
        if place != self._place:
            self._place, self._since = place, time.monotonic()
        return time.monotonic() - self._since >= self._after_s


def _in_collective_with(frame: FrameType, rank: int) -> bool:
    """The innermost frame of Python tells where native code was entered."""
    name = frame.f_code.co_filename
    if name.endswith(_DDP):
        return True
    if not name.endswith(_COLLECTIVES):
        return False
    group = frame.f_locals.get("group")
    return not isinstance(group, dist.ProcessGroup) or rank in dist.get_process_group_ranks(group)
