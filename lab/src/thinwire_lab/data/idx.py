"""MNIST and Fashion-MNIST: images in the IDX format, packed with gzip or not."""

from __future__ import annotations

import gzip
import math
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.data.folder import Remote, Say, obtain, open_folder
from thinwire_lab.data.task import Array, Split, Task

UNSIGNED_BYTE = 0x08


@dataclass(frozen=True)
class IdxSet:
    """What differs between the data sets of this format."""

    name: str
    folders: tuple[str, ...]  # ours first, then where torchvision puts them
    url: str
    md5: Mapping[str, str]
    mean: float
    std: float


MNIST = IdxSet(
    name="mnist",
    folders=("mnist", "MNIST/raw"),
    url="https://ossci-datasets.s3.amazonaws.com/mnist/",
    md5={
        "train-images-idx3-ubyte": "f68b3c2dcbeaaa9fbdd348bbdeb94873",
        "train-labels-idx1-ubyte": "d53e105ee54ea40749a09fcbcd1e9432",
        "t10k-images-idx3-ubyte": "9fb629c4189551a2d022fa330f9573f3",
        "t10k-labels-idx1-ubyte": "ec29112dd5afa0611ce80d1b7f02629c",
    },
    mean=0.1307,
    std=0.3081,
)

FASHION_MNIST = IdxSet(
    name="fashion-mnist",
    folders=("fashion-mnist", "FashionMNIST/raw"),
    url="http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    md5={
        "train-images-idx3-ubyte": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
        "train-labels-idx1-ubyte": "25c81989df183df01b3e8a0aad5dffbe",
        "t10k-images-idx3-ubyte": "bef4ecab320f06d8554ea6380940ec79",
        "t10k-labels-idx1-ubyte": "bb300cfdad3c16e7a12a480ee83cd310",
    },
    mean=0.2860,
    std=0.3530,
)


def load_idx(data: IdxSet, folder: Path | None, say: Say) -> Task:
    """Read the four files of an IDX data set as a task."""
    found = open_folder(folder)

    def split(part: str) -> Split:
        images, labels = (
            read_idx(_path(data, found, f"{part}-{what}-ubyte", say), ndim)
            for what, ndim in (("images-idx3", 3), ("labels-idx1", 1))
        )
        if len(images) != len(labels):
            raise LabError(
                f"{data.name} in {found} has {len(images)} {part} images but {len(labels)} labels: "
                f"delete the {part} files and let thinwire fetch them again"
            )
        return Split(images[:, None], labels)

    return Task(data.name, split("train"), split("t10k"), 10, 255.0, (data.mean,), (data.std,))


def _path(data: IdxSet, folder: Path, stem: str, say: Say) -> Path:
    candidates = [f"{sub}/{stem}{suffix}" for sub in data.folders for suffix in (".gz", "")]
    return obtain(folder, candidates, Remote(candidates[0], f"{data.url}{stem}.gz", data.md5[stem]), say)


def read_idx(path: Path, ndim: int) -> Array:
    """The array in an IDX file: bytes 0, 0, 8, ndim; then `ndim` big-endian 32-bit lengths; then the data."""
    raw = _unpacked(path)
    if len(raw) < 4 or raw[:4] != bytes((0, 0, UNSIGNED_BYTE, ndim)):
        raise LabError(
            f"{path} is not an IDX file of {ndim} dimensions (it starts with {raw[:4].hex()!r}): replace it"
        )
    header = 4 + 4 * ndim
    shape = [int(n) for n in np.frombuffer(raw[4:header].ljust(4 * ndim, b"\0"), ">u4")]
    if len(raw) != header + math.prod(shape):
        raise LabError(
            f"{path} is damaged: {len(raw)} bytes unpacked, shape {shape} needs {header + math.prod(shape)}: "
            "delete it and let thinwire fetch it again"
        )
    return np.frombuffer(raw, np.uint8, offset=header).reshape(shape)


def _unpacked(path: Path) -> bytes:
    try:
        raw = path.read_bytes()
        return gzip.decompress(raw) if path.suffix == ".gz" else raw
    except (OSError, EOFError, zlib.error) as error:
        raise LabError(
            f"{path} cannot be read ({error}): delete it and let thinwire fetch it again"
        ) from error
