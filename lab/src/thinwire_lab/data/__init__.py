"""Data sets by name: each loader gives a `Task`; files come from a data folder or from their publishers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType

from thinwire.errors import LabError
from thinwire_lab.data.sets import FASHION_MNIST, MNIST, load_cifar10, load_digits, load_idx, load_shakespeare
from thinwire_lab.data.task import Say, Split, Task, open_task

__all__ = ["LOADERS", "Split", "Task", "load_task", "open_task"]

Loader = Callable[[Path | None, Say], Task]

LOADERS: Mapping[str, Loader] = MappingProxyType(
    {
        "digits": load_digits,
        "mnist": partial(load_idx, MNIST),
        "fashion-mnist": partial(load_idx, FASHION_MNIST),
        "cifar10": load_cifar10,
        "shakespeare": load_shakespeare,
    }
)


def load_task(name: str, folder: Path | None = None, say: Say = lambda _: None) -> Task:
    """The task called `name`, its files taken from `folder` (default: the cache folder)."""
    if name not in LOADERS:
        raise LabError(f"unknown task {name!r}: choose one of {', '.join(LOADERS)}")
    return LOADERS[name](folder, say)
