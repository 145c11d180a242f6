"""Data sets by name: each loader gives a `Task`; files come from a data folder or from their publishers."""

from __future__ import annotations

from pathlib import Path

from thinwire.errors import LabError
from thinwire.lab.data.cifar import load_cifar10
from thinwire.lab.data.digits import load_digits
from thinwire.lab.data.idx import FASHION_MNIST, MNIST, load_idx
from thinwire.lab.data.store import Say, open_folder
from thinwire.lab.data.task import Split, Task, open_task
from thinwire.lab.data.text import load_shakespeare

__all__ = ["TASKS", "Split", "Task", "load_task", "open_task"]

TASKS = ("digits", "mnist", "fashion-mnist", "cifar10", "shakespeare")


def load_task(name: str, folder: Path | None = None, say: Say = lambda _: None) -> Task:
    """The task called `name`, its files taken from `folder` (default: the cache folder)."""
    if name == "digits":
        return load_digits()
    if name == "mnist":
        return load_idx(MNIST, open_folder(folder), say)
    if name == "fashion-mnist":
        return load_idx(FASHION_MNIST, open_folder(folder), say)
    if name == "cifar10":
        return load_cifar10(open_folder(folder), say)
    if name == "shakespeare":
        return load_shakespeare(open_folder(folder), say)
    raise LabError(f"unknown task {name!r}: choose one of {', '.join(TASKS)}")
