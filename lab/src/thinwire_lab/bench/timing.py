"""Timing of one act by all workers together, with the bytes that their interfaces sent meanwhile."""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

from thinwire_lab.net.counters import read_counters
from thinwire_lab.net.netlab import INTERFACE


def sent_bytes() -> int:
    """Payload bytes sent by this host's interface so far; 0 where it has none of its own (loopback)."""
    if os.environ.get("GLOO_SOCKET_IFNAME") != INTERFACE:
        return 0
    return read_counters(INTERFACE).tx_payload_bytes


def timed(act: Callable[[], None]) -> tuple[float, float]:
    """The slowest worker's seconds, and the bytes this worker's interface sent (0 without counters)."""
    dist.barrier()
    before = sent_bytes()
    start = time.perf_counter()
    act()
    seconds = torch.tensor(time.perf_counter() - start)
    dist.barrier()  # what is still queued in the kernel leaves before the counters are read
    nbytes = sent_bytes() - before
    dist.all_reduce(seconds, op=dist.ReduceOp.MAX)
    return seconds.item(), float(nbytes)
