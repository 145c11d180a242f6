"""Tiny Shakespeare: one text, cut into windows of characters; the target is the next character."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.data.folder import Remote, Say, obtain, open_folder
from thinwire_lab.data.task import BITS_PER_CHARACTER, Array, Split, Task

CONTEXT = 64
TRAIN_SHARE = 0.9  # in order, as is usual for this text
SHAKESPEARE = Remote(
    "text/tinyshakespeare.txt",
    "https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    "6fb458f1232090904fb40fe944165e91",
)


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
