"""Checkpoints that meet a full disk, a flipped bit or an early end."""

from __future__ import annotations

import contextlib
import os
import random
import resource
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from thinwire.errors import LabError
from thinwire_lab.run.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from thinwire_lab.run.recipe import digits


def saved(folder: Path, number: int) -> tuple[Path, Checkpoint]:
    generator = torch.Generator().manual_seed(number)
    model = {"weight": torch.randn(64, 65, generator=generator), "bias": torch.randn(65, generator=generator)}
    kept = {"feedback": {"residual": {"weight": torch.randn(64, 65, generator=generator)}}, "step": number}
    path = folder / "run.ckpt"
    checkpoint = Checkpoint(digits(), number, model, {"lr": 0.1}, kept)
    write_checkpoint(path, checkpoint)
    return path, checkpoint


def same(one: Checkpoint, other: Checkpoint) -> bool:
    return _flat(vars(one)) == _flat(vars(other))


def _flat(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.dtype, tuple(value.shape), value.tolist()
    if isinstance(value, dict):
        return {key: _flat(item) for key, item in value.items()}
    return value


def full_disk(seed: int, how: str) -> tuple[bool, bool, str]:
    """Saving fails half-way: whether it told, and whether the checkpoint before it is whole."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name, small_disk(Path(name), how) as folder:
        path, first = saved(folder, 1)
        size, told, said = path.stat().st_size, False, ""
        limit = chance.randrange(size)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        if how == "limit":
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        else:
            room = os.statvfs(folder)
            filler = folder / "filler"
            filler.write_bytes(b"0" * max(0, room.f_bavail * room.f_frsize - limit))
        try:
            saved(folder, 2)
        except LabError as error:
            told, said = True, str(error)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        return told, same(read_checkpoint(path), first), said


@contextlib.contextmanager
def small_disk(folder: Path, how: str) -> Iterator[Path]:
    if how == "limit":
        yield folder
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def damaged(seed: int, how: str) -> str:
    """A checkpoint with a flipped bit, or cut short: refused, the same values, or other values."""
    chance = random.Random(seed)
    with tempfile.TemporaryDirectory() as name:
        path, whole = saved(Path(name), seed % 7)
        content = bytearray(path.read_bytes())
        if how == "flipped":
            content[chance.randrange(len(content))] ^= 1 << chance.randrange(8)
        else:
            del content[chance.randrange(len(content)) :]
        path.write_bytes(content)
        try:
            found = read_checkpoint(path)
        except LabError:
            return "refused"
        return "same values" if same(found, whole) else "other values"
