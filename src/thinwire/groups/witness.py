"""A witness: connections of their own over which ranks tell each other why an exchange failed."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Mapping
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.groups.base import Note

LETTER_BYTES = 4096  # of a note on the wire; json makes at most 6 bytes of a character
TEXT_MAX = 600


class Witness:
    """Swaps notes with every peer, over a gloo group that carries nothing else.

    It works when the group of the exchanges is broken, and needs no store, which dies with the rank that
    keeps it. A dead peer's connection fails at once; a stopped or busy peer's only after `patience_s`.
    """

    def __init__(self, group: dist.ProcessGroup, patience_s: float) -> None:
        self._group, self._patience_s = group, patience_s

    def swap(self, note: Note) -> Mapping[int, Note | None]:
        """What every rank has to say: None for a rank that is gone, nothing for one that stays silent."""
        found: dict[int, Note | None] = {self._group.rank(): note}
        threads = [
            threading.Thread(target=self._swap_with, args=(peer, note, found), daemon=True)
            for peer in range(self._group.size())
            if peer not in found
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found

    def _swap_with(self, peer: int, note: Note, found: dict[int, Note | None]) -> None:
        patience = timedelta(seconds=self._patience_s)
        letter = torch.empty(LETTER_BYTES, dtype=torch.uint8)
        start = time.monotonic()
        try:
            sending = self._group.send([_write(note)], peer, 0)
            self._group.recv([letter], peer, 0).wait(patience)
            found[peer] = _read(letter)
            sending.wait(patience)
        except RuntimeError:
            if peer not in found and time.monotonic() - start < 0.9 * self._patience_s:
                found[peer] = None


def _write(note: Note) -> Tensor:
    text = json.dumps([note.stage, note.text[:TEXT_MAX], note.own])
    return torch.frombuffer(bytearray(text.encode().ljust(LETTER_BYTES)), dtype=torch.uint8)


def _read(letter: Tensor) -> Note:
    return Note(*json.loads(bytes(letter.tolist())))
