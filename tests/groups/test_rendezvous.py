"""Ranks that meet through a store: those that come late, those that never come, every kind of store."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist
from torch.distributed.distributed_c10d import Store

from thinwire.errors import PeerError
from thinwire.groups.rendezvous import Rendezvous

Stores = Callable[[int], Store]


@pytest.fixture(params=["file", "tcp"])
def stores(request: pytest.FixtureRequest, tmp_path: Path) -> Stores:
    """Every rank's own store of the same keys."""
    if request.param == "file":
        return lambda rank: dist.FileStore(str(tmp_path / "store"), 2)
    keeper = dist.TCPStore("localhost", 0, 2, is_master=True, wait_for_workers=False)
    return lambda rank: (
        keeper if rank == 0 else dist.TCPStore("localhost", keeper.port, 2, timeout=timedelta(seconds=60))
    )


def test_a_rank_may_come_late(stores: Stores) -> None:
    """With a store in a file a rank that came half a second later than another ended both."""
    met: dict[int, list[dict[str, Any]]] = {}

    def attend(rank: int) -> None:
        met[rank] = Rendezvous(stores(rank), "late", [0, 1], rank).attend({"rank": rank}, timeout_s=60)

    early = threading.Thread(target=attend, args=(0,))
    early.start()
    time.sleep(1.5)
    attend(1)
    early.join()
    assert met == {rank: [{"rank": 0}, {"rank": 1}] for rank in (0, 1)}


def test_a_rank_that_never_comes_is_named(stores: Stores) -> None:
    with pytest.raises(PeerError, match="rank 1 did not call compress"):
        Rendezvous(stores(0), "never", [0, 1], 0).attend({}, timeout_s=1.0)
