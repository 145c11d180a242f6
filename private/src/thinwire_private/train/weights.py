"""Floating-point weights on disk: a QNet's state before it goes to the grid, trained only once."""

from __future__ import annotations

from pathlib import Path

import torch

from thinwire_private.errors import ModelError
from thinwire_private.train.qnet import QNet


def save_weights(net: QNet, path: Path) -> None:
    """Write the weights of a floating-point network."""
    path.parent.mkdir(parents=True, exist_ok=True)
    torch.save(net.state_dict(), path)


def load_weights(net: QNet, path: Path) -> None:
    """Read weights that `save_weights` wrote for the same network; nothing in the file is executed."""
    try:
        net.load_state_dict(torch.load(path, weights_only=True))
    except FileNotFoundError as error:
        raise ModelError(f"{path} does not exist: name a file that --keep-float wrote") from error
    except Exception as error:  # torch raises many kinds for damaged files and other networks
        raise ModelError(
            f"{path} does not fit network {net.graph.name!r} ({type(error).__name__}): train it anew"
        ) from error
