"""The leftover memory: what a codec held back when another one took its place; sent once, then gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from torch import Tensor

from thinwire.memories.base import Kept, Memory
from thinwire.tensors.layout import Piece

E = "residual"
LEFTOVER = "leftover"


class Leftover(Memory):
    """Holds gradients. They join the next exchange of their tensors, and are gone if that step is believed.

    No plan names it: the engine fills it when it takes another plan (`Engine.switch`).
    """

    pieces_held = MappingProxyType({E: Kept.OWN})

    def __init__(self) -> None:
        super().__init__()
        self._joined: set[str] = set()

    def __bool__(self) -> bool:
        """Whether anything is left."""
        return bool(self.pages.kept)

    def put(self, name: str, gradient: Tensor) -> None:
        """What was held back of a tensor, beside what may be left of it already."""
        held = self.pages.kept.get(name)
        self.pages.kept[name] = {E: gradient if held is None else held[E].add_(gradient)}

    def take(self) -> dict[str, Tensor]:
        """All that is left, which then is somebody else's to keep."""
        taken = {name: held[E] for name, held in self.pages.kept.items()}
        self.pages.load({})
        return taken

    def before(self, x: Tensor, pieces: Sequence[Piece], loss_scale: float) -> None:
        for piece in pieces:
            old = self.pages.old(piece)
            if old is not None:
                x[piece.where].add_(old[E].to(x.dtype), alpha=loss_scale)
                self._joined.add(piece.name)

    def after(self, x: Tensor, own: Tensor, base: int, pieces: Sequence[Piece], loss_scale: float) -> None:
        pass

    def commit(self) -> None:
        for name in self._joined:
            del self.pages.kept[name]
        self._joined.clear()

    def forget(self, names: Iterable[str] | None = None) -> None:
        self._joined -= self._joined.copy() if names is None else set(names)

    def drop(self) -> None:
        """Gives up all that is left."""
        self.pages.load({})
        self._joined.clear()
