"""A checkpoint: model, optimizer, compressor and step of a run in one file, written whole or not at all."""

from __future__ import annotations

import os
import pickle
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from thinwire.errors import LabError
from thinwire.lab.recipe import Recipe, recipe_from_dict

FORMAT = "thinwire checkpoint"
VERSION = 1
# What must be equal for the resumed run to be the same run; learning rate and link may be changed on purpose.
SAME = ("task", "model", "codec", "workers", "batch", "optimizer", "seed", "augment")


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `step` steps; the order of examples follows from seed and step."""

    recipe: Recipe
    step: int
    model: dict[str, Any]
    optimizer: dict[str, Any]
    compressor: dict[str, Any] | None


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Write beside the target, flush to disk, rename: a crash leaves the old checkpoint or the new one."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    values = {**vars(checkpoint), "recipe": checkpoint.recipe.to_dict(), "format": FORMAT, "version": VERSION}
    try:
        with part.open("wb") as file:
            torch.save(values, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(part, path)
    except (OSError, RuntimeError) as error:  # torch reports a full disk as a RuntimeError
        raise LabError(
            f"checkpoint {path} cannot be written ({error}): free some space or name another file"
        ) from error
    finally:
        part.unlink(missing_ok=True)


def read_checkpoint(path: Path) -> Checkpoint:
    """Read a checkpoint; nothing in the file is executed."""
    if not path.is_file():
        raise LabError(f"checkpoint {path} does not exist: name the file that --checkpoint wrote")
    try:
        if not zipfile.is_zipfile(path):  # else torch would try formats of its youth on any file at all
            raise ValueError("not a whole zip archive")
        values = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, EOFError, ValueError, LookupError, pickle.UnpicklingError) as error:
        raise LabError(
            f"checkpoint {path} is damaged or not a checkpoint ({_first_line(error)}): "
            "resume from another file"
        ) from error
    if not isinstance(values, dict) or values.get("format") != FORMAT:
        raise LabError(
            f"{path} was not written by thinwire train: resume from a file that --checkpoint wrote"
        )
    if values["version"] != VERSION:
        raise LabError(
            f"checkpoint {path} has format version {values['version']}, this thinwire reads {VERSION}: "
            "use the thinwire that wrote it"
        )
    fields = {name: values[name] for name in ("step", "model", "optimizer", "compressor")}
    return Checkpoint(recipe=recipe_from_dict(values["recipe"]), **fields)


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
