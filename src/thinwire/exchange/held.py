"""What the memories of a rank, or of all ranks, hold: as plain tensors, and for a world of another size."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence

import torch
from torch import Tensor

from thinwire.exchange.engine import Engine
from thinwire.memories.base import Kept
from thinwire.memories.table import make_memory

HeldState = dict[str, dict[str, dict[str, Tensor]]]  # by memory, by piece of state, by tensor


def held_by(engine: Engine) -> HeldState:
    """Sorted by name: the order in which tensors were first seen differs with the buckets."""
    return {
        text: {what: dict(sorted(tensors.items())) for what, tensors in memory.state().items()}
        for text, memory in engine.memories.items()
    }


def held_by_all(engine: Engine) -> tuple[list[HeldState], HeldState]:
    """What is each rank's own, by rank, and what is the same on all ranks; collective."""
    held = held_by(engine)
    own, shared = _pieces(held, Kept.OWN), _pieces(held, Kept.SHARED)
    shapes = {
        text: {what: {name: t.numel() for name, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }
    engine.compare_digests(digest_of(shapes), "memories")
    flat = [t.flatten() for pieces in own.values() for tensors in pieces.values() for t in tensors.values()]
    send = torch.cat([torch.empty(0, device=engine.context.device), *flat])
    everyone = torch.empty(engine.group.size, send.numel(), device=send.device)
    if flat:
        engine.group.all_gather(send.view(torch.uint8), everyone.view(torch.uint8)).wait()
    return [_unflatten(row, own) for row in everyone], shared


def held_for(ranks: Sequence[HeldState], shared: HeldState, rank: int, world: int) -> HeldState:
    """What one rank of a world that may have another size holds.

    What is shared is the same for all. Of what is a rank's own the sum over the ranks is kept: old rank r
    goes to new rank r mod world, and new ranks beyond the old ones start with zeros.
    """
    mine = ranks[rank::world]
    first = mine[0] if mine else _zeros(ranks[0])
    for other in mine[1:]:
        first = _added(first, other)
    return {text: {**first.get(text, {}), **shared.get(text, {})} for text in {**first, **shared}}


def held_of(held: HeldState, names: Collection[str]) -> HeldState:
    """What is held of some tensors."""
    return {
        text: {what: {n: t for n, t in tensors.items() if n in names} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }


def load_held(engine: Engine, held: HeldState) -> None:
    """Puts it back; memories of which nothing is known start with nothing."""
    device = engine.context.device
    for text in {*engine.memories, *held}:
        engine.memory(text).load(
            {
                what: {name: t.to(device) for name, t in tensors.items()}
                for what, tensors in held.get(text, {}).items()
            }
        )


def digest_of(shapes: Mapping[str, object]) -> bytes:
    return hashlib.blake2b(repr(shapes).encode(), digest_size=32).digest()


def _pieces(held: HeldState, kept: Kept) -> HeldState:
    return {
        text: {what: t for what, t in pieces.items() if make_memory(text).pieces_held[what] is kept}
        for text, pieces in held.items()
    }


def _unflatten(flat: Tensor, like: HeldState) -> HeldState:
    start = 0

    def cut(tensor: Tensor) -> Tensor:
        nonlocal start
        start += tensor.numel()
        return flat[start - tensor.numel() : start].clone()

    return {
        text: {what: {name: cut(t) for name, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in like.items()
    }


def _zeros(held: HeldState) -> HeldState:
    return {
        text: {what: {n: torch.zeros_like(t) for n, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }


def _added(a: HeldState, b: HeldState) -> HeldState:
    return {
        text: {
            what: {name: t + b[text][what][name] for name, t in tensors.items()}
            for what, tensors in pieces.items()
        }
        for text, pieces in a.items()
    }
