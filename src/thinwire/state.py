"""The state of an engine as plain tensors and numbers, by tensor name: local, or gathered from all ranks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from thinwire.engine import Engine
from thinwire.errors import StateError

STATE_VERSION = 1
Memories = dict[str, dict[str, Tensor]]


def local_state(engine: Engine) -> dict[str, Any]:
    """What this rank must keep to go on with the same bits."""
    return {**_stamp(engine), "rank": engine.group.rank, "memories": _memories(engine)}


def gathered_state(engine: Engine) -> dict[str, Any]:
    """The states of all ranks, the same on every rank; collective, and what rank 0 saves."""
    mine = _memories(engine)
    shapes = {kind: {name: tensor.numel() for name, tensor in kept.items()} for kind, kept in mine.items()}
    engine.compare_digests(_digest(shapes), "memories")
    flat = [tensor.flatten() for kept in mine.values() for tensor in kept.values()]
    send = torch.cat(flat).view(torch.uint8) if flat else torch.empty(0, dtype=torch.uint8)
    everyone = torch.empty(engine.group.size, send.numel(), dtype=torch.uint8, device=send.device)
    if flat:
        engine.group.gather(send, everyone).wait()
    ranks = [_unflatten(row.view(torch.float32), shapes) for row in everyone]
    return {**_stamp(engine), "gathered": True, "ranks": ranks}


def load_state(engine: Engine, state: Mapping[str, Any]) -> None:
    """Puts a local or a gathered state back; refuses what does not fit, and then changes nothing."""
    _check(engine, state)
    if state.get("gathered"):
        memories = _share(state["ranks"], engine.group.rank, engine.group.size)
    else:
        memories = state["memories"]
    for kind, memory in engine.memories.items():
        memory.load({n: t.to(engine.place.device) for n, t in memories.get(kind, {}).items()})
    engine.step = int(state["step"])


def _stamp(engine: Engine) -> dict[str, Any]:
    return {
        "version": STATE_VERSION,
        "world": engine.group.size,
        "step": engine.step,
        "seed": engine.seed,
        "plan": [str(entry) for entry in engine.plan.entries],
    }


def _memories(engine: Engine) -> Memories:
    """Sorted by name: the order in which tensors were first seen differs with the buckets."""
    return {kind: dict(sorted(memory.state().items())) for kind, memory in engine.memories.items()}


def _digest(shapes: Mapping[str, Mapping[str, int]]) -> bytes:
    import hashlib

    return hashlib.blake2b(repr(shapes).encode(), digest_size=32).digest()


def _unflatten(flat: Tensor, shapes: Mapping[str, Mapping[str, int]]) -> Memories:
    memories: Memories = {}
    start = 0
    for kind, sizes in shapes.items():
        memories[kind] = {}
        for name, numel in sizes.items():
            memories[kind][name] = flat[start : start + numel].clone()
            start += numel
    return memories


def _share(ranks: list[Memories], rank: int, world: int) -> Memories:
    """The memories for one rank of a world that may have another size: the sum over all ranks is kept.

    Old rank r goes to new rank r mod world; new ranks beyond the old ones start empty.
    """
    shared: Memories = {}
    for old in ranks[rank::world]:
        for kind, kept in old.items():
            into = shared.setdefault(kind, {})
            for name, tensor in kept.items():
                into[name] = into[name] + tensor if name in into else tensor
    return shared


def _check(engine: Engine, state: Mapping[str, Any]) -> None:
    if not isinstance(state, Mapping) or "version" not in state:
        raise StateError("this is no state of a thinwire compressor: pass what state_dict() returned")
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"the state has version {state['version']}, this thinwire reads version {STATE_VERSION}: "
            "load it with the thinwire that wrote it"
        )
    ours = [str(entry) for entry in engine.plan.entries]
    theirs = list(state["plan"])
    if ours != theirs:
        differing = sorted(set(ours) ^ set(theirs))
        raise StateError(
            f"the state belongs to another model or codec: {len(differing)} lines of the plan differ, first "
            f'"{differing[0]}"' if differing else "the state has the tensors in another order"
        )
    if state["seed"] != engine.seed:
        raise StateError(f"the state was made with seed {state['seed']}, this compressor has {engine.seed}")
    if state.get("gathered"):
        return
    if (state["rank"], state["world"]) != (engine.group.rank, engine.group.size):
        raise StateError(
            f"the state is of rank {state['rank']} of {state['world']}, this is rank {engine.group.rank} of "
            f"{engine.group.size}: load each rank's own state, or one made with state_dict(gather=True)"
        )
