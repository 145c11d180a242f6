"""Pages: what a memory holds of every tensor, as it is believed and as the step under way would leave it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from torch import Tensor

from thinwire.tensors.layout import Piece

Held = dict[str, Tensor]  # the pieces of state of one tensor, by name


class Pages:
    """Two copies of all that is held: `kept` is believed, what `room` gives is believed after `commit`."""

    def __init__(self, names: tuple[str, ...]) -> None:
        self.kept: dict[str, Held] = {}
        self._names = names  # of the pieces of state
        self._spare: dict[str, Held] = {}
        self._fresh: dict[str, Held] = {}

    def old(self, piece: Piece) -> Held | None:
        """What is believed of these elements of a tensor; None: nothing is held of it yet."""
        held = self.kept.get(piece.name)
        return None if held is None else _cut(held, piece)

    def room(self, piece: Piece, like: Tensor) -> Held:
        """Room for what the step leaves of these elements; the same room all through a step."""
        held = self._fresh.get(piece.name)
        if held is None:
            spare = self._spare.pop(piece.name, {})
            held = self._fresh[piece.name] = spare or self._blank(piece, like)
        return _cut(held, piece)

    def in_place(self, piece: Piece, like: Tensor) -> Held:
        """What is believed, to be written over at once: a step cannot be forgotten then."""
        if piece.name not in self.kept:
            self.kept[piece.name] = self._blank(piece, like)
        return _cut(self.kept[piece.name], piece)

    def commit(self) -> None:
        for name, held in self._fresh.items():  # the old room is written to in the next step
            if name in self.kept:
                self._spare[name] = self.kept[name]
            self.kept[name] = held
        self._fresh = {}

    def forget(self, names: Iterable[str] | None = None) -> None:
        for name in list(self._fresh) if names is None else set(names).intersection(self._fresh):
            self._spare[name] = self._fresh.pop(name)

    def load(self, kept: Mapping[str, Held]) -> None:
        self.kept, self._spare, self._fresh = dict(kept), {}, {}

    def _blank(self, piece: Piece, like: Tensor) -> Held:
        return {what: like.new_zeros(piece.numel) for what in self._names}


def _cut(held: Held, piece: Piece) -> Held:
    return {what: tensor[piece.elements] for what, tensor in held.items()}
