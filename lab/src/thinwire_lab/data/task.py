"""A task: a data set ready for training, where its files come from, and the order of its examples."""

from __future__ import annotations

import hashlib
import json
import math
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from thinwire.errors import LabError

Array = NDArray[np.uint8]
Indices = NDArray[np.int64]

ACCURACY = "accuracy"
BITS_PER_CHARACTER = "bits per character"
DOWNLOAD_TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 20
Say = Callable[[str], None]
SHIFT = 4


@dataclass(frozen=True)
class Split:
    """Examples `x` and their targets `y`, both kept as bytes: the first axis counts examples."""

    x: Array
    y: Array

    def __len__(self) -> int:
        return len(self.x)


@dataclass(frozen=True)
class Task:
    """Train and test examples of one data set.

    Images are stored as bytes in N, C, H, W order and become (x / scale - mean) / std one batch at a time, so
    that four workers on one machine share 150 MB of CIFAR-10 instead of holding 600 MB each. An empty `mean`
    means that the bytes are symbols (characters), not numbers.
    """

    name: str
    train: Split
    test: Split
    classes: int
    scale: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    metric: str = ACCURACY

    def with_few(self, examples: int) -> Task:
        """The same task with only the first training examples, which a net soon overfits."""
        return replace(self, train=Split(self.train.x[:examples], self.train.y[:examples]))

    def batch(self, split: Split, indices: Indices) -> tuple[Tensor, Tensor]:
        """The examples at `indices`, normalised, and their targets."""
        x = torch.from_numpy(split.x[indices])
        y = torch.from_numpy(split.y[indices]).long()
        if not self.mean:
            return x.long(), y
        mean = torch.tensor(self.mean).view(-1, 1, 1)
        std = torch.tensor(self.std).view(-1, 1, 1)
        return (x.float() / self.scale - mean) / std, y

    def loss(self, logits: Tensor, targets: Tensor) -> Tensor:
        """Mean cross-entropy over examples, or over all characters of a text."""
        return functional.cross_entropy(logits.flatten(0, -2), targets.flatten())

    def score(self, mean_loss: float, share_right: float) -> float:
        """The number by which this task is judged, named by `metric`."""
        return share_right if self.metric == ACCURACY else mean_loss / math.log(2)

    def save(self, folder: Path) -> None:
        """Write the task as plain .npy files that every worker maps into memory."""
        folder.mkdir(parents=True, exist_ok=True)
        for name, array in self._arrays().items():
            np.save(folder / f"{name}.npy", array)
        facts = {"name": self.name, "classes": self.classes, "scale": self.scale, "metric": self.metric}
        (folder / "task.json").write_text(json.dumps({**facts, "mean": self.mean, "std": self.std}))

    def _arrays(self) -> dict[str, Array]:
        return {
            "train_x": self.train.x,
            "train_y": self.train.y,
            "test_x": self.test.x,
            "test_y": self.test.y,
        }


def open_task(folder: Path) -> Task:
    """The task that `Task.save` wrote, its arrays mapped read-only: pages are shared between workers."""

    def array(name: str) -> Any:
        return np.load(folder / f"{name}.npy", mmap_mode="r")

    facts = json.loads((folder / "task.json").read_text())
    return Task(
        name=facts["name"],
        train=Split(array("train_x"), array("train_y")),
        test=Split(array("test_x"), array("test_y")),
        classes=facts["classes"],
        scale=facts["scale"],
        mean=tuple(facts["mean"]),
        std=tuple(facts["std"]),
        metric=facts["metric"],
    )


@dataclass(frozen=True)
class Remote:
    """A file as its publisher offers it: where it belongs in the data folder, its address and its md5."""

    path: str
    url: str
    md5: str


def default_folder() -> Path:
    """The folder of data sets if the user names none: the XDG cache."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "thinwire" / "data"


def open_folder(folder: Path | None) -> Path:
    """The folder the user named, which must exist, or the cache folder, which is made."""
    if folder is None:
        return default_folder()
    if not folder.is_dir():
        raise LabError(
            f"data folder {folder} does not exist: name an existing folder with --data, or leave --data out"
        )
    return folder


def first_existing(folder: Path, candidates: Sequence[str]) -> Path | None:
    """The first of `candidates` that exists under `folder`."""
    return next((folder / name for name in candidates if (folder / name).is_file()), None)


def obtain(folder: Path, candidates: Sequence[str], remote: Remote, say: Say) -> Path:
    """The path of a file: one of `candidates` if it is there, else downloaded from `remote`."""
    found = first_existing(folder, candidates)
    return found if found is not None else download(folder, remote, say)


def download(folder: Path, remote: Remote, say: Say) -> Path:
    """Fetch `remote` into the folder.

    1. read into a temporary file beside the target;  2. compare its md5;  3. rename: nobody sees half a file.
    """
    target = folder / remote.path
    part = target.with_name(f".{target.name}.{os.getpid()}.part")
    say(f"downloading {remote.url}")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with (
            urllib.request.urlopen(remote.url, timeout=DOWNLOAD_TIMEOUT_S) as stream,
            part.open("wb") as file,
        ):
            digest = _copy(stream, file)
        if digest != remote.md5:
            raise LabError(
                f"{remote.url} arrived with md5 {digest}, not {remote.md5}: "
                f"try again, or put the file at {target}"
            )
        os.replace(part, target)
    except OSError as error:  # URLError, timeouts, a full disk and a read-only folder are all OSErrors
        raise LabError(missing(folder, remote, _reason(error))) from error
    finally:
        part.unlink(missing_ok=True)
    return target


def _copy(stream: BinaryIO, file: BinaryIO) -> str:
    digest = hashlib.md5(usedforsecurity=False)
    while block := stream.read(CHUNK_BYTES):
        digest.update(block)
        file.write(block)
    return digest.hexdigest()


def _reason(error: OSError) -> str:
    if isinstance(error, urllib.error.HTTPError):
        error.close()  # it is the answer itself, with an open connection
        return f"HTTP {error.code} {error.reason}"
    return str(error.reason if isinstance(error, urllib.error.URLError) else error)


def missing(folder: Path, remote: Remote, reason: str) -> str:
    """The error for a file that is missing and cannot be downloaded."""
    return (
        f"{remote.path} is not in data folder {folder} and downloading {remote.url} failed ({reason}): "
        f"put the file at {folder / remote.path}, or name a folder that has it with --data DIR"
    )


def shift_and_flip(images: Tensor) -> Tensor:
    """Random crops of the zero-padded images, mirrored with probability 1/2; draws from torch's generator.

    The row (column) read for pixel y (x) of image b is y + dy[b] (x + dx[b], or its mirror image).
    """
    batch, _, height, width = images.shape
    padded = functional.pad(images, (SHIFT,) * 4)
    dy, dx = torch.randint(2 * SHIFT + 1, (2, batch, 1))
    rows = torch.arange(height) + dy
    columns = torch.arange(width) + dx
    columns = torch.where(torch.rand(batch, 1) < 0.5, columns, columns.flip(1))
    picked = padded.gather(2, rows[:, None, :, None].expand(-1, padded.shape[1], -1, padded.shape[3]))
    return picked.gather(3, columns[:, None, None, :].expand(-1, padded.shape[1], height, -1))


@dataclass(frozen=True)
class ExampleOrder:
    """Every epoch is shuffled and dealt out to the workers; examples that do not fill a batch are left out.

    >>> order = ExampleOrder(num_examples=4, batch=1, workers=2, seed=0)
    >>> [len(batch) for batch in order.batches(rank=1, first=0, last=2)]
    [1, 1]
    """

    num_examples: int
    batch: int
    workers: int
    seed: int

    @property
    def steps_per_epoch(self) -> int:
        """Full batches of all workers in one epoch."""
        return self.num_examples // (self.batch * self.workers)

    def batches(self, rank: int, first: int, last: int) -> Iterator[Indices]:
        """The indices for worker `rank` at steps first, ..., last - 1: the same wherever one starts."""
        shuffled, shuffled_epoch = self._shuffled(0), 0
        for step in range(first, last):
            epoch, place = divmod(step, self.steps_per_epoch)
            if epoch != shuffled_epoch:
                shuffled, shuffled_epoch = self._shuffled(epoch), epoch
            start = (place * self.workers + rank) * self.batch
            yield shuffled[start : start + self.batch]

    def _shuffled(self, epoch: int) -> Indices:
        return np.random.default_rng([self.seed, epoch]).permutation(self.num_examples)
