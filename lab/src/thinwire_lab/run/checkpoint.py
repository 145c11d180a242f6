"""A checkpoint: model, optimizer, compressor and step of a run in one file, written whole or not at all.

    0   magic     8 bytes, "TWCHKPT" and a newline
    8   version   4 bytes, little endian
    12  length    8 bytes, little endian: of the body
    20  digest    32 bytes: BLAKE2b of everything before it and of the body
    52  body      what torch.save makes of plain values and tensors

Reading verifies the digest before anything looks into the body: torch itself loads flipped bits in silence.
"""

from __future__ import annotations

import hashlib
import io
import os
import pickle
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from thinwire.errors import LabError
from thinwire_lab.run.recipe import Recipe, recipe_from_dict

MAGIC = b"TWCHKPT\n"
VERSION = 2
HEAD = struct.Struct("<8sIQ")
DIGEST_BYTES = 32
# What must be equal for the resumed run to be the same run; learning rate and link may be changed on purpose.
SAME = ("task", "model", "codec", "workers", "batch", "optimizer", "seed", "augment")


@dataclass(frozen=True)
class CheckpointOptions:
    """Where a run is saved, where it goes on from and where it stops early."""

    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    resume: Path | None = None
    stop_at: int | None = None

    def check(self, recipe: Recipe) -> None:
        """Refuse what cannot work before a process is started."""
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise LabError(f"--checkpoint-every must be at least 1, not {self.checkpoint_every}")
        if self.stop_at is not None and self.stop_at < 1:
            raise LabError(f"--stop-at must be at least 1, not {self.stop_at}")
        if self.checkpoint is not None and not self.checkpoint.absolute().parent.is_dir():
            raise LabError(
                f"folder {self.checkpoint.absolute().parent} for --checkpoint does not exist: make it first"
            )
        if (self.checkpoint or self.resume) and recipe.codec.startswith("ddp-powersgd"):
            raise LabError("the state of ddp-powersgd cannot be saved: leave out --checkpoint and --resume")
        if self.resume is not None:
            self._check_resume(self.resume, recipe)

    def _check_resume(self, path: Path, recipe: Recipe) -> None:
        from thinwire_lab.run.checkpoint import check_same_run, read_checkpoint

        checkpoint = read_checkpoint(path)
        check_same_run(path, checkpoint, recipe)
        if self.stop_at is not None and self.stop_at <= checkpoint.step:
            raise LabError(
                f"checkpoint {path} is at step {checkpoint.step} already: --stop-at must be above it"
            )


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps; the order of examples follows from seed and step."""

    recipe: Recipe
    step: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    compressor: dict[str, Any] | None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write beside the target, flush, rename: a crash or a full disk leaves the old or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    body = io.BytesIO()
    torch.save({**vars(checkpoint), "recipe": checkpoint.recipe.to_dict()}, body)
    head = HEAD.pack(MAGIC, VERSION, body.tell())
    try:
        with part.open("wb") as file:
            file.write(head)
            file.write(_digest(head, body.getbuffer()))
            file.write(body.getbuffer())
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
        _sync_folder(path.absolute().parent)
    except OSError as error:
        raise LabError(
            f"checkpoint {path} cannot be written ({error}): free some space or name another file"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; every bit is checked, and nothing in the file is executed."""
    if not path.is_file():
        raise LabError(f"checkpoint {path} does not exist: name the file that --checkpoint wrote")
    try:
        version, body = _opened(path)
        if version != VERSION:
            raise _OtherVersion(version)
        values = torch.load(io.BytesIO(body), map_location="cpu", weights_only=True)
        fields = {name: values[name] for name in ("step", "model", "optimizer", "compressor")}
        return Checkpoint(recipe=recipe_from_dict(values["recipe"]), **fields)
    except _OtherVersion as other:
        raise LabError(
            f"checkpoint {path} has format version {other}, this thinwire reads {VERSION}: "
            "use the thinwire that wrote it"
        ) from None
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        raise LabError(
            f"checkpoint {path} is damaged or not a checkpoint ({_first_line(error)}): "
            "resume from another file"
        ) from error


class _OtherVersion(Exception):
    """A whole checkpoint, of another format."""


def _opened(path: Path) -> tuple[int, memoryview]:
    """The version and the body of a file, if they are those that were written."""
    whole = memoryview(path.read_bytes())
    head = whole[: HEAD.size]
    if len(head) < HEAD.size or head[: len(MAGIC)] != MAGIC:
        raise ValueError("it does not begin as a checkpoint of thinwire train does")
    _, version, length = HEAD.unpack(head)
    digest, body = whole[HEAD.size :][:DIGEST_BYTES], whole[HEAD.size + DIGEST_BYTES :]
    if len(body) != length:
        raise ValueError(f"{len(body):,} bytes where {length:,} were written")
    if digest != _digest(head, body):
        raise ValueError("its checksum is wrong: bits have changed since it was written")
    return version, body


def _digest(head: bytes | memoryview, body: memoryview) -> bytes:
    digest = hashlib.blake2b(head, digest_size=DIGEST_BYTES)
    digest.update(body)
    return digest.digest()


def _sync_folder(folder: Path) -> None:
    """The new name survives a power cut too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def check_same_run(path: Path, checkpoint: Checkpoint, recipe: Recipe) -> None:
    """Refuse to resume a run from the checkpoint of a different one."""
    for name in SAME:
        theirs, ours = getattr(checkpoint.recipe, name), getattr(recipe, name)
        if theirs != ours:
            raise LabError(
                f"checkpoint {path} was made with {name} {theirs!r}, this run has {ours!r}: "
                f"run with the same {name}, or start anew without --resume"
            )


def _first_line(error: Exception) -> str:
    return (str(error) or type(error).__name__).splitlines()[0].rstrip(".")[:120]
