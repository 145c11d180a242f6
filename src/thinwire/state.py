"""The state of an engine as plain tensors and numbers, by tensor name: local, or gathered from all ranks."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire.controls.observation import Observation, merged
from thinwire.controls.table import control_text
from thinwire.engine import Engine
from thinwire.errors import StateError
from thinwire.memory import tensor_of
from thinwire.plan import tensor_in
from thinwire.stages.base import OWNED, Notes, owner

STATE_VERSION = 4
Memories = dict[str, dict[str, Tensor]]


def local_state(engine: Engine) -> dict[str, Any]:
    """What this rank must keep to go on with the same bits."""
    return {
        **_stamp(engine),
        "rank": engine.group.rank,
        "memories": _memories(engine),
        "notes": _notes(engine),
        "control": engine.steering.state_dict([engine.steering.pending]),
    }


def gathered_state(engine: Engine) -> dict[str, Any]:
    """The states of all ranks, the same on every rank; collective, and what rank 0 saves."""
    with engine.group.aside():
        return _gathered(engine)


def _gathered(engine: Engine) -> dict[str, Any]:
    mine = _memories(engine)
    shapes = {kind: {name: tensor.numel() for name, tensor in kept.items()} for kind, kept in mine.items()}
    engine.compare_digests(_digest(shapes), "memories")
    flat = [tensor.flatten() for kept in mine.values() for tensor in kept.values()]
    send = torch.cat([torch.empty(0, device=engine.place.device), *flat])
    everyone = torch.empty(engine.group.size, send.numel(), device=send.device)
    if flat:
        engine.group.gather(send.view(torch.uint8), everyone.view(torch.uint8)).wait()
    ranks = [_unflatten(row, shapes) for row in everyone]
    return {
        **_stamp(engine),
        "gathered": True,
        "ranks": ranks,
        "notes": _gathered_notes(engine),
        "control": engine.steering.state_dict(
            engine.observations() if engine.steering.listens else [engine.steering.pending]
        ),
    }


class NotTaken(NamedTuple):
    """What `strict=False` left out, by tensor name, as torch calls it; empty lists: everything was taken.

    A tensor whose codec, memory, route or shape is another than in the state is in both lists.
    """

    missing_keys: list[str]  # tensors of this model of which the state knows nothing that fits
    unexpected_keys: list[str]  # tensors of the state that this model has no use for


def load_state(engine: Engine, state: Mapping[str, Any], strict: bool = True) -> NotTaken:
    """Puts a local or a gathered state back; refuses what does not fit, and then changes nothing.

    With `strict=False` another model's state is taken as far as tensors are the same: what they hold back and
    what was learnt of them. Tensors that are missing there start with nothing, and if the codec of one of
    them learns a basis, all learn anew.
    """
    not_taken = _check(engine, state, strict)
    if not_taken.missing_keys or not_taken.unexpected_keys:
        state = _fitting(engine, state, not_taken)
    if state.get("gathered"):
        memories = _share(state["ranks"], engine.group.rank, engine.group.size)
        notes = _owned_only(state["notes"], engine.group.rank, engine.group.size)
    else:
        memories, notes = state["memories"], state["notes"]
    engine.steering.load(state["control"], _pending(engine, state["control"]))
    for kind in {*engine.memories, *memories}:
        engine.memory(kind).load({n: t.to(engine.place.device) for n, t in memories.get(kind, {}).items()})
    engine.notes.clear()  # the same dict: lanes hold it
    for name, note in notes.items():
        engine.notes[name] = {what: t.to(engine.place.device, copy=True) for what, t in note.items()}
    engine.step, engine.finite_steps = int(state["step"]), int(state["finite_steps"])
    return not_taken


def _fitting(engine: Engine, state: Mapping[str, Any], not_taken: NotTaken) -> dict[str, Any]:
    """The state without the tensors that do not fit."""
    missing = set(not_taken.missing_keys)
    known = {entry.spec.name for entry in engine.plan.entries} - missing

    def kept(memories: Memories) -> Memories:
        return {
            kind: {key: t for key, t in held.items() if tensor_of(key, kind) in known}
            for kind, held in memories.items()
        }

    learners = [entry for entry in engine.plan.entries if any(link.learns for link in entry.codec.stages)]
    anew = any(entry.spec.name in missing for entry in learners)
    notes = {} if anew else {name: note for name, note in state["notes"].items() if name in known}
    fitting = {**state, "notes": notes, "finite_steps": 0 if anew else state["finite_steps"]}
    if state.get("gathered"):
        return {**fitting, "ranks": [kept(memories) for memories in state["ranks"]]}
    return {**fitting, "memories": kept(state["memories"])}


def _pending(engine: Engine, control: Mapping[str, Any] | None) -> Observation:
    """What this rank had observed and not yet told; in a world of another size all ranks tell the same."""
    told = [Observation(**observation) for observation in control["pending"]] if control else [Observation()]
    if len(told) == 1:
        return told[0]
    return told[engine.group.rank] if len(told) == engine.group.size else merged(told, lambda rank: rank)


def _stamp(engine: Engine) -> dict[str, Any]:
    return {
        "version": STATE_VERSION,
        "world": engine.group.size,
        "step": engine.step,
        "finite_steps": engine.finite_steps,
        "seed": engine.seed,
        "plan": [str(entry) for entry in engine.plan.entries],
    }


def _memories(engine: Engine) -> Memories:
    """Sorted by name: the order in which tensors were first seen differs with the buckets."""
    return {kind: dict(sorted(memory.state().items())) for kind, memory in engine.memories.items()}


def _notes(engine: Engine) -> Notes:
    """What the stages remember, as tensors of their own."""
    return {
        name: {what: t.clone(memory_format=torch.contiguous_format) for what, t in sorted(note.items())}
        for name, note in sorted(engine.notes.items())
    }


def _gathered_notes(engine: Engine) -> Notes:
    """The notes with what the owners alone hold: others hold zeros, so the sum over the ranks is exact."""
    notes = _notes(engine)
    shapes = {name: {what: list(t.shape) for what, t in note.items()} for name, note in notes.items()}
    engine.compare_digests(_digest(shapes), "notes of what was learnt")
    for note in notes.values():
        for what, tensor in note.items():
            if what.startswith(OWNED):
                engine.group.sum_(tensor).wait()
    return notes


def _owned_only(notes: Notes, rank: int, world: int) -> Notes:
    """The notes for one rank of a world that may have another size: what others own becomes zeros."""

    def keep(name: str, what: str) -> bool:
        return not what.startswith(OWNED) or owner(name, world) == rank

    return {
        name: {what: t if keep(name, what) else torch.zeros_like(t) for what, t in note.items()}
        for name, note in notes.items()
    }


def _digest(shapes: Mapping[str, Mapping[str, Any]]) -> bytes:
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

    Old rank r goes to new rank r mod world; new ranks beyond the old ones start with zeros.
    """
    if rank >= len(ranks):
        return {
            kind: {name: torch.zeros_like(t) for name, t in kept.items()} for kind, kept in ranks[0].items()
        }
    shared: Memories = {}
    for old in ranks[rank::world]:
        for kind, kept in old.items():
            into = shared.setdefault(kind, {})
            for name, tensor in kept.items():
                into[name] = into[name] + tensor if name in into else tensor
    return shared


def _check(engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
    if not isinstance(state, Mapping) or "version" not in state:
        raise StateError("this is no state of a thinwire compressor: pass what state_dict() returned")
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"the state has version {state['version']}, this thinwire reads version {STATE_VERSION}: "
            "load it with the thinwire that wrote it"
        )
    not_taken = _compared(engine, list(state["plan"]), strict)
    theirs_control = (state["control"] or {}).get("text")
    ours_control = control_text(engine.plan.control)
    if theirs_control is not None and theirs_control != ours_control:
        raise StateError(
            f'the state was made under control "{theirs_control}", this compressor has "{ours_control}": '
            "pass the same control"
        )
    if state["seed"] != engine.seed:
        raise StateError(f"the state was made with seed {state['seed']}, this compressor has {engine.seed}")
    if state.get("gathered"):
        return not_taken
    if (state["rank"], state["world"]) != (engine.group.rank, engine.group.size):
        raise StateError(
            f"the state is of rank {state['rank']} of {state['world']}, this is rank {engine.group.rank} of "
            f"{engine.group.size}: load each rank's own state, or one made with state_dict(gather=True)"
        )
    return not_taken


def _compared(engine: Engine, theirs: list[str], strict: bool) -> NotTaken:
    """The tensors whose lines in the two plans differ; raises if that is not allowed."""
    ours = [str(entry) for entry in engine.plan.entries]
    missing = [line for line in ours if line not in set(theirs)]
    unexpected = [line for line in theirs if line not in set(ours)]
    if strict and ours != theirs:
        if not missing and not unexpected:
            raise StateError("the state has the tensors in another order: build the model as it was then")
        between = "; " if missing and unexpected else ""
        raise StateError(
            f"the state belongs to another model or codec: {_first('here only', missing)}{between}"
            f"{_first('in the state only', unexpected)}. Build the model as it was then, or take what fits "
            "with load_state_dict(state, strict=False), which returns what it did not take"
        )
    return NotTaken([tensor_in(line) for line in missing], [tensor_in(line) for line in unexpected])


def _first(where: str, lines: list[str]) -> str:
    more = f" and {len(lines) - 1} more" if len(lines) > 1 else ""
    return f'{where} "{lines[0]}"{more}' if lines else ""
