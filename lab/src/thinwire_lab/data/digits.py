"""Digits: the 1,797 pictures of 8x8 pixels that come inside scikit-learn; no download."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from thinwire.errors import LabError
from thinwire_lab.data.folder import Say
from thinwire_lab.data.task import Split, Task

TEST_EVERY = 5  # every fifth picture is kept for testing: a split without a random generator
LEVELS = 16.0


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
