"""CIFAR-10: the official binary version (folder or tar.gz), or the same pictures packed with xz."""

from __future__ import annotations

import lzma
import tarfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.data.folder import Remote, Say, obtain, open_folder
from thinwire_lab.data.task import Array, Split, Task

TRAIN = tuple(f"data_batch_{k}" for k in range(1, 6))
TEST = "test_batch"
IMAGES_PER_FILE = 10_000
IMAGE_BYTES = 3 * 32 * 32
FILE_BYTES = IMAGES_PER_FILE * (1 + IMAGE_BYTES)

PACKED_FOLDER = "cifar-10"
BINARY_FOLDERS = ("cifar-10-batches-bin", "cifar-10/cifar-10-batches-bin", "cifar-10")
ARCHIVE = Remote(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c32a1d4ab5d03f1284b67883e8d87530",
)
MEAN = (0.4914, 0.4822, 0.4465)
STD = (0.2470, 0.2435, 0.2616)

Reader = Callable[[str], Split]


def load_cifar10(folder: Path | None, say: Say) -> Task:
    """Read CIFAR-10 in whichever of the three layouts is there, else download the official archive."""
    read = _reader(open_folder(folder), say)
    with ThreadPoolExecutor(max_workers=2) as pool:  # unpacking releases the GIL
        *train, test = pool.map(read, (*TRAIN, TEST))
    joined = Split(np.concatenate([part.x for part in train]), np.concatenate([part.y for part in train]))
    return Task("cifar10", joined, test, 10, 255.0, MEAN, STD)


def _reader(folder: Path, say: Say) -> Reader:
    for sub in BINARY_FOLDERS:
        if (folder / sub / f"{TEST}.bin").is_file():
            return lambda name: binary_split(
                _bytes(folder / sub / f"{name}.bin"), folder / sub / f"{name}.bin"
            )
    if (folder / PACKED_FOLDER / f"{TEST}.xz").is_file():
        return lambda name: packed_split(folder / PACKED_FOLDER / f"{name}.xz")
    archive = obtain(folder, (ARCHIVE.path, f"{PACKED_FOLDER}/{ARCHIVE.path}"), ARCHIVE, say)
    say(f"unpacking {archive}")
    members = archive_members(archive)
    return lambda name: binary_split(members[name], archive)


def binary_split(raw: bytes, path: Path) -> Split:
    """Official layout: per image one label byte, then the R, G and B planes."""
    rows = np.frombuffer(_checked(raw, path), np.uint8).reshape(IMAGES_PER_FILE, 1 + IMAGE_BYTES)
    return Split(rows[:, 1:].reshape(-1, 3, 32, 32), _checked_labels(rows[:, 0], path))


def packed_split(path: Path) -> Split:
    """Packed layout: 10,000 labels, then 10,000 images in height, width, channel order."""
    try:
        raw = lzma.decompress(_bytes(path))
    except lzma.LZMAError as error:
        raise LabError(f"{path} is damaged ({error}): copy it again") from error
    array = np.frombuffer(_checked(raw, path), np.uint8)
    images = array[IMAGES_PER_FILE:].reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2)
    return Split(np.ascontiguousarray(images), _checked_labels(array[:IMAGES_PER_FILE], path))


def archive_members(path: Path) -> dict[str, bytes]:
    """The six batches inside the official archive, read without unpacking anything to disk."""
    wanted = {f"{name}.bin": name for name in (*TRAIN, TEST)}
    members: dict[str, bytes] = {}
    try:
        with tarfile.open(path, "r:gz") as archive:
            for member in archive:
                name = wanted.get(Path(member.name).name)
                stream = archive.extractfile(member) if name else None
                if name and stream:
                    members[name] = stream.read()
    except (OSError, EOFError, tarfile.TarError) as error:
        raise LabError(f"{path} is damaged ({error}): delete it and let thinwire fetch it again") from error
    if absent := sorted(set(wanted.values()) - set(members)):
        raise LabError(f"{path} lacks {', '.join(absent)}: it is not CIFAR-10's binary version, delete it")
    return members


def _bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise LabError(
            f"{path} cannot be read ({error.strerror}): CIFAR-10 needs all six batch files"
        ) from error


def _checked(raw: bytes, path: Path) -> bytes:
    if len(raw) != FILE_BYTES:
        raise LabError(f"{path} is damaged: {len(raw)} bytes unpacked instead of {FILE_BYTES}: copy it again")
    return raw


def _checked_labels(labels: Array, path: Path) -> Array:
    if labels.max() > 9:
        raise LabError(
            f"{path} is damaged: label {labels.max()} is not one of the classes 0 to 9: copy it again"
        )
    return labels
