"""Together: what all ranks of a group do in a probe at the same time, and the numbers that all then hold."""

from __future__ import annotations

import hashlib
import statistics
import threading
import time
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire.groups.base import Group

CPU = torch.device("cpu")
_SPIN_BYTES = 1 << 16
_SPUN = bytes(_SPIN_BYTES)


def refuse_one(group: Group) -> None:
    """A group of one has no link."""
    if group.size < 2:
        raise LabError(
            f"a probe of a group of {group.size} measures nothing: there is no link; start at least "
            "2 workers, as in torchrun --nproc-per-node 2"
        )


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def barrier(group: Group, device: torch.device = CPU) -> None:
    group.all_reduce(torch.zeros(1, device=device)).wait()
    synchronize(device)


def medians(group: Group, values: Sequence[float], device: torch.device = CPU) -> list[float]:
    """Each number's median over the ranks: the same bits on all of them."""
    mine = torch.tensor(values, dtype=torch.float64).view(torch.uint8).to(device)
    return [statistics.median(column) for column in zip(*_gathered(group, mine), strict=True)]


def _gathered(group: Group, mine: Tensor) -> list[list[float]]:
    everyone = mine.new_empty(group.size, mine.numel())
    group.all_gather(mine, everyone).wait()
    return [row.cpu().contiguous().view(torch.float64).tolist() for row in everyone]


def gathered_bytes(group: Group, data: bytes, device: torch.device = CPU) -> list[bytes]:
    """What every rank has, which may differ in length, on all ranks."""
    sizes = _gathered(group, torch.tensor([len(data)], dtype=torch.float64).view(torch.uint8).to(device))
    longest = max(1, int(max(size for (size,) in sizes)))
    mine = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8).to(device)
    everyone = mine.new_empty(group.size, longest)
    group.all_gather(mine, everyone).wait()
    rows = zip(everyone.cpu(), sizes, strict=True)
    return [row[: int(size)].numpy().tobytes() for row, (size,) in rows]


def first_bytes(group: Group, data: bytes, device: torch.device = CPU) -> bytes:
    """What the first rank has, on all ranks."""
    return gathered_bytes(group, data, device)[0]


def spin(stop: Callable[[], bool]) -> int:
    """Keeps one core busy, without the interpreter's lock, until told to stop: rounds done."""
    rounds = 0
    while not stop():
        hashlib.blake2b(_SPUN).digest()
        rounds += 1
    return rounds


def spin_for(seconds: float) -> float:
    """Rounds a second of one thread."""
    start = time.perf_counter()
    rounds = spin(lambda: time.perf_counter() - start >= seconds)
    return rounds / (time.perf_counter() - start)


def beside(work: Callable[[], object]) -> tuple[float, float]:
    """Seconds that `work` takes on a thread of its own while this thread spins, and rounds spun meanwhile."""
    over = threading.Event()
    errors: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:  # raised below, on the thread that asked
            errors.append(error)
        finally:
            over.set()

    start = time.perf_counter()
    thread = threading.Thread(target=run, name="thinwire probe")
    thread.start()
    rounds = spin(over.is_set)
    thread.join()
    for error in errors:
        raise error
    return time.perf_counter() - start, rounds
