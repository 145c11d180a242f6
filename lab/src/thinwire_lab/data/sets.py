"""The data sets: digits (they come inside scikit-learn), MNIST, Fashion-MNIST, CIFAR-10, Shakespeare."""

from __future__ import annotations

import gzip
import lzma
import math
import tarfile
import zlib
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.data.task import BITS_PER_CHARACTER, Array, Remote, Say, Split, Task, obtain, open_folder

TEST_EVERY = 5  # every fifth picture is kept for testing: a split without a random generator
LEVELS = 16.0
UNSIGNED_BYTE = 0x08
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
CONTEXT = 64
TRAIN_SHARE = 0.9  # in order, as is usual for this text
SHAKESPEARE = Remote(
    "text/tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "6fb458f1232090904fb40fe944165e91",
)


def load_digits(folder: Path | None, say: Say) -> Task:
    """Read scikit-learn's digits as a task: 1,437 pictures to train on, 360 to test; no folder is needed."""
    try:
        from sklearn.datasets import load_digits as embedded
    except ImportError as error:
        raise LabError("the digits come with scikit-learn: run pip install scikit-learn") from error
    data = embedded()
    images = data.images.astype(np.uint8)[:, None]
    labels = data.target.astype(np.uint8)
    test = np.arange(len(images)) % TEST_EVERY == 0
    mean, std = float(images.mean() / LEVELS), float(images.std() / LEVELS)
    train_split, test_split = Split(images[~test], labels[~test]), Split(images[test], labels[test])
    return Task("digits", train_split, test_split, 10, LEVELS, (mean,), (std,))


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


def load_shakespeare(folder: Path | None, say: Say) -> Task:
    """Read tiny Shakespeare as a task over the characters that occur in it."""
    path = obtain(open_folder(folder), (SHAKESPEARE.path, "tinyshakespeare.txt"), SHAKESPEARE, say)
    symbols, classes = encode(path)
    border = int(len(symbols) * TRAIN_SHARE)
    train, test = windows(symbols[:border]), windows(symbols[border:])
    if not len(test):
        raise LabError(
            f"{path} has {len(symbols)} characters, too few for windows of {CONTEXT}: fetch it again"
        )
    return Task("shakespeare", train, test, classes, 1.0, (), (), BITS_PER_CHARACTER)


def encode(path: Path) -> tuple[Array, int]:
    """Every character as its place in the sorted alphabet of the text, and the size of that alphabet."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise LabError(
            f"{path} cannot be read as UTF-8 text ({error}): delete it and fetch it again"
        ) from error
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    alphabet, symbols = np.unique(codes, return_inverse=True)
    if len(alphabet) > 256:
        raise LabError(
            f"{path} has {len(alphabet)} different characters, at most 256 fit: is it tiny Shakespeare?"
        )
    return symbols.astype(np.uint8), len(alphabet)


def windows(symbols: Array) -> Split:
    """Windows of CONTEXT characters end to end; y is x moved on by one."""
    count = max(len(symbols) - 1, 0) // CONTEXT
    x = symbols[: count * CONTEXT].reshape(count, CONTEXT)
    y = symbols[1 : count * CONTEXT + 1].reshape(count, CONTEXT)
    return Split(x, y)
