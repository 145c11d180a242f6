"""Checkpoints: written whole, read without executing anything, refused when they are not of this run."""

import os
import pickle
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from thinwire.errors import LabError
from thinwire_lab.run.checkpoint import (
    Checkpoint,
    CheckpointOptions,
    check_same_run,
    read_checkpoint,
    write_checkpoint,
)
from thinwire_lab.run.recipe import digits


@pytest.fixture
def checkpoint() -> Checkpoint:
    return Checkpoint(digits(), 7, {"w": torch.arange(1000.0)}, {"state": {}}, {"step": 7})


def test_round_trip(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    write_checkpoint(path, checkpoint)
    again = read_checkpoint(path)
    assert (again.recipe, again.step, again.compressor) == (checkpoint.recipe, 7, {"step": 7})
    assert torch.equal(again.model["w"], checkpoint.model["w"])
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("share", [0.0, 0.001, 0.005, 0.3, 0.9, 0.9999])
def test_truncated_file_is_one_sentence(checkpoint: Checkpoint, tmp_path: Path, share: float) -> None:
    path = tmp_path / "run.pt"
    write_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(
        LabError, match=r"run\.pt is damaged or not a checkpoint .*: resume from another file"
    ):
        read_checkpoint(path)


class Bomb:
    def __reduce__(self) -> tuple:
        return os.mkdir, ("exploded",)


def test_foreign_files_are_refused_and_never_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save({"w": torch.zeros(2)}, "weights.pt")
    Path("bomb.pkl").write_bytes(pickle.dumps(Bomb()))
    torch.save(Bomb(), "bomb.pt")
    Path("text.pt").write_text("root:x:0:0:root:/root:/bin/bash\n")
    for name in ("weights.pt", "bomb.pkl", "bomb.pt", "text.pt"):
        with pytest.raises(LabError, match="damaged or not a checkpoint"):
            read_checkpoint(Path(name))
    assert not Path("exploded").exists()


def test_missing_file_and_other_version(
    checkpoint: Checkpoint, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(LabError, match="does not exist"):
        read_checkpoint(tmp_path / "no.pt")
    path = tmp_path / "new.pt"
    monkeypatch.setattr("thinwire_lab.run.checkpoint.VERSION", 99)
    write_checkpoint(path, checkpoint)
    monkeypatch.undo()
    with pytest.raises(LabError, match="format version 99, this thinwire reads 2"):
        read_checkpoint(path)


def test_every_flipped_bit_is_found(checkpoint: Checkpoint, tmp_path: Path) -> None:
    """torch loaded 1,328 of 1,500 of them in silence."""
    path = tmp_path / "run.pt"
    write_checkpoint(path, checkpoint)
    whole = path.read_bytes()
    draw = random.Random(0)
    places = [*range(8 * 52), *(draw.randrange(8 * len(whole)) for _ in range(200))]
    for place in places:
        damaged = bytearray(whole)
        damaged[place // 8] ^= 1 << place % 8
        path.write_bytes(damaged)
        with pytest.raises(LabError, match=r"is damaged or not a checkpoint .*: resume from another file"):
            read_checkpoint(path)
    path.write_bytes(whole + b"more")
    with pytest.raises(LabError, match="is damaged"):
        read_checkpoint(path)


@pytest.mark.parametrize(
    ("field", "value"), [("model", "lenet"), ("workers", 3), ("codec", "dense"), ("seed", 5)]
)
def test_other_run_is_refused(checkpoint: Checkpoint, tmp_path: Path, field: str, value: Any) -> None:
    path = tmp_path / "run.pt"
    write_checkpoint(path, checkpoint)
    with pytest.raises(LabError, match=f"was made with {field} .*, this run has {value!r}"):
        CheckpointOptions(resume=path).check(replace(digits(), **{field: value}))
    check_same_run(path, checkpoint, replace(digits(), lr=0.01, rate="1gbit"))


def test_failed_write_keeps_the_old_checkpoint(checkpoint: Checkpoint, tmp_path: Path) -> None:
    path = tmp_path / "run.pt"
    write_checkpoint(path, checkpoint)
    (tmp_path / f".run.pt.{os.getpid()}.part").symlink_to("/dev/full")
    with pytest.raises(LabError, match=r"cannot be written .*: free some space"):
        write_checkpoint(path, replace(checkpoint, step=8))
    assert read_checkpoint(path).step == 7


def test_stops_are_checked(checkpoint: Checkpoint, tmp_path: Path) -> None:
    write_checkpoint(tmp_path / "run.pt", checkpoint)
    for options, sentence in (
        (CheckpointOptions(checkpoint_every=0), "--checkpoint-every must be at least 1"),
        (CheckpointOptions(stop_at=0), "--stop-at must be at least 1"),
        (CheckpointOptions(checkpoint=tmp_path / "no" / "run.pt"), "does not exist: make it first"),
        (CheckpointOptions(resume=tmp_path / "run.pt", stop_at=7), "is at step 7 already"),
    ):
        with pytest.raises(LabError, match=sentence):
            options.check(digits())
