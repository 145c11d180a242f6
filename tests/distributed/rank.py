"""One rank of a team: joins the gloo group, then runs what the team asks for until it is told to leave."""

from __future__ import annotations

import pickle
import sys
import traceback
import warnings
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import Client, Connection
from typing import Any

import torch.distributed as dist


@dataclass(frozen=True)
class Leave:
    """Tells a rank to end: whether to destroy the process groups first, and the exit code."""

    destroy: bool = True
    code: int = 0


@dataclass(frozen=True)
class Failure:
    """An exception as the team sees it: the names of its classes, its text and its traceback."""

    kinds: tuple[str, ...]
    text: str
    trace: str

    @classmethod
    def of(cls, error: BaseException) -> Failure:
        kinds = tuple(kind.__name__ for kind in type(error).__mro__)
        return cls(kinds, str(error), "".join(traceback.format_exception(error)))


@dataclass(frozen=True)
class Raised:
    """The answer of a rank whose function raised."""

    failure: Failure


def serve(rank: int, world: int, address: str, timeout_s: float, host: str = "127.0.0.1") -> None:
    """Runs (function, arguments) from the team one by one; every answer is a value or Raised."""
    warnings.simplefilter("error")
    with Client(address) as team:
        team.send((rank, None))
        dist.init_process_group(
            "gloo",
            store=_store(rank, world, team, timeout_s, host),
            rank=rank,
            world_size=world,
            timeout=timedelta(seconds=timeout_s),
        )
        while not isinstance(task := pickle.loads(team.recv_bytes()), Leave):
            work, args = task
            team.send_bytes(pickle.dumps(_answer(work, args)))
    if task.destroy:
        dist.destroy_process_group()
    sys.exit(task.code)


def _store(rank: int, world: int, team: Connection, timeout_s: float, host: str) -> dist.Store:
    """Rank 0 keeps the store, as in a job without torchrun, on a port that is free for certain."""
    port = 0
    if rank > 0:
        port = team.recv()
    store = dist.TCPStore(host, port, world, rank == 0, timedelta(seconds=timeout_s), False)
    if rank == 0:
        team.send(store.port)
    return store


def _answer(work: Any, args: tuple[Any, ...]) -> Any:
    try:
        return work(*args)
    except SystemExit:  # the work ends its process
        raise
    except BaseException as error:  # the team decides what it means
        return Raised(Failure.of(error))
