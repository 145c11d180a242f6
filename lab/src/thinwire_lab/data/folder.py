"""The data folder: finds the files of a data set in it and downloads those that are missing."""

from __future__ import annotations

import hashlib
import os
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from thinwire.errors import LabError

DOWNLOAD_TIMEOUT_S = 20.0
CHUNK_BYTES = 1 << 20

Say = Callable[[str], None]


@dataclass(frozen=True)
class Remote:
    """A file as its publisher offers it: where it belongs in the data folder, its address and its md5."""

    path: str
    url: str
    md5: str


def default_folder() -> Path:
    """Where data is kept when the user names no folder: the XDG cache."""
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
    """The sentence for a file that is neither here nor to be had."""
    return (
        f"{remote.path} is not in data folder {folder} and downloading {remote.url} failed ({reason}): "
        f"put the file at {folder / remote.path}, or name a folder that has it with --data DIR"
    )
