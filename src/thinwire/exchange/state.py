"""The state of an engine as plain tensors and numbers, local or gathered."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from thinwire.codecs.stage import OWNED, Learned, owner
from thinwire.errors import StateError
from thinwire.exchange.engine import Engine
from thinwire.feedback.base import Ownership
from thinwire.feedback.table import make_feedback
from thinwire.plans.plan import tensor_in
from thinwire.schedules.base import Observation, merged
from thinwire.schedules.table import schedule_text

FeedbackState = dict[
    str, dict[str, dict[str, Tensor]]
]  # by text of the feedback, by name of the state, by tensor


def feedback_state(engine: Engine) -> FeedbackState:
    """Sorted by name: the order in which tensors were first seen differs with the buckets."""
    return {
        text: {what: dict(sorted(tensors.items())) for what, tensors in feedback.state().items()}
        for text, feedback in engine.feedbacks.items()
    }


def gathered_feedback(engine: Engine) -> tuple[list[FeedbackState], FeedbackState]:
    """What is each rank's own, by rank, and what is the same on all ranks; collective."""
    held = feedback_state(engine)
    own = _pieces(held, Ownership.PER_RANK, Ownership.OWNED)
    shared = _pieces(held, Ownership.SHARED)
    shapes = {
        text: {what: {name: t.numel() for name, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }
    engine.compare_digests(digest_of(shapes), "states of error feedback")
    flat = [t.flatten() for pieces in own.values() for tensors in pieces.values() for t in tensors.values()]
    send = torch.cat([torch.empty(0, device=engine.context.device), *flat])
    everyone = torch.empty(engine.group.size, send.numel(), device=send.device)
    if flat:
        engine.group.all_gather(send.view(torch.uint8), everyone.view(torch.uint8)).wait()
    return [_unflatten(row, own) for row in everyone], shared


def feedback_of_rank(
    ranks: Sequence[FeedbackState], shared: FeedbackState, rank: int, world: int
) -> FeedbackState:
    """What one rank of a world that may have another size holds.

    What is shared is the same for all. Of what is a rank's own the sum over the ranks is kept: old rank r
    goes to new rank r mod world, and new ranks beyond the old ones start with zeros. What owners hold is
    given to all as one tensor: each goes on with what it owns.
    """
    mine = [_pieces(held, Ownership.PER_RANK) for held in ranks[rank::world]]
    own = _sum(mine or [_zeros(_pieces(ranks[0], Ownership.PER_RANK))])
    owned = _sum([_pieces(held, Ownership.OWNED) for held in ranks])
    return {
        text: {**own.get(text, {}), **owned.get(text, {}), **shared.get(text, {})}
        for text in {**own, **owned, **shared}
    }


def feedback_of(held: FeedbackState, names: Collection[str]) -> FeedbackState:
    """What is held of some tensors."""
    return {
        text: {what: {n: t for n, t in tensors.items() if n in names} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }


def load_feedback(engine: Engine, held: FeedbackState) -> None:
    """Puts it back; feedback of which nothing is known starts empty."""
    device = engine.context.device
    for text in {*engine.feedbacks, *held}:
        engine.feedback_for(text).load(
            {
                what: {name: t.to(device) for name, t in tensors.items()}
                for what, tensors in held.get(text, {}).items()
            }
        )


def digest_of(shapes: Mapping[str, object]) -> bytes:
    return hashlib.blake2b(repr(shapes).encode(), digest_size=32).digest()


def _pieces(held: FeedbackState, *kept: Ownership) -> FeedbackState:
    return {
        text: {what: t for what, t in pieces.items() if make_feedback(text).state_kinds[what] in kept}
        for text, pieces in held.items()
    }


def _unflatten(flat: Tensor, like: FeedbackState) -> FeedbackState:
    start = 0

    def cut(tensor: Tensor) -> Tensor:
        nonlocal start
        start += tensor.numel()
        return flat[start - tensor.numel() : start].clone()

    return {
        text: {what: {name: cut(t) for name, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in like.items()
    }


def _zeros(held: FeedbackState) -> FeedbackState:
    return {
        text: {what: {n: torch.zeros_like(t) for n, t in tensors.items()} for what, tensors in pieces.items()}
        for text, pieces in held.items()
    }


def _sum(listed: Sequence[FeedbackState]) -> FeedbackState:
    total, *others = listed
    for other in others:
        total = {
            text: {
                what: {name: t + other[text][what][name] for name, t in tensors.items()}
                for what, tensors in pieces.items()
            }
            for text, pieces in total.items()
        }
    return total


STATE_VERSION = 5


def local_state(engine: Engine) -> dict[str, Any]:
    """What this rank must keep to go on with the same bits."""
    return {
        **_stamp(engine),
        "rank": engine.group.rank,
        "feedback": feedback_state(engine),
        "learned": _learned(engine),
        "schedule": engine.scheduler.state_dict([engine.scheduler.pending]),
    }


def gathered_state(engine: Engine) -> dict[str, Any]:
    """The states of all ranks, the same on every rank; collective, and what rank 0 saves."""
    with engine.group.aside():
        return _gathered(engine)


def _gathered(engine: Engine) -> dict[str, Any]:
    ranks, shared = gathered_feedback(engine)
    pending = engine.observations() if engine.scheduler.listens else [engine.scheduler.pending]
    return {
        **_stamp(engine),
        "gathered": True,
        "ranks": ranks,
        "shared": shared,
        "learned": _gathered_learned(engine),
        "schedule": engine.scheduler.state_dict(pending),
    }


class NotTaken(NamedTuple):
    """What `strict=False` left out, by tensor name, as torch calls it; empty lists: everything was taken.

    A tensor whose codec, feedback, route or shape differs from the state is in both lists.
    """

    missing_keys: list[str]  # tensors of this model of which the state knows nothing that fits
    unexpected_keys: list[str]  # tensors of the state that this model has no use for


def load_state(engine: Engine, state: Mapping[str, Any], strict: bool = True) -> NotTaken:
    """Puts a local or a gathered state back; refuses what does not fit, and then changes nothing.

    With `strict=False` another model's state is taken as far as tensors are the same: what they hold back and
    what was learnt of them. Tensors that are missing there start with nothing, and if the codec of one of
    them learns a basis, all learn anew.
    """
    state = _present(state) if isinstance(state, Mapping) else state
    not_taken = _check(engine, state, strict)
    if not_taken.missing_keys or not_taken.unexpected_keys:
        state = _fitting(engine, state, not_taken)
    if state.get("gathered"):
        rank, world = engine.group.rank, engine.group.size
        feedbacks = feedback_of_rank(state["ranks"], state["shared"], rank, world)
        learned = _owned_only(state["learned"], rank, world)
    else:
        feedbacks, learned = state["feedback"], state["learned"]
    engine.scheduler.load(state["schedule"], _pending(engine, state["schedule"]))
    load_feedback(engine, feedbacks)
    engine.release_owners()
    engine.learned.clear()  # the same dict: lanes hold it
    for name, known in learned.items():
        engine.learned[name] = {what: t.to(engine.context.device, copy=True) for what, t in known.items()}
    engine.catch_up()
    engine.step, engine.finite_steps = int(state["step"]), int(state["finite_steps"])
    return not_taken


def _present(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """The state under the present names of its parts, not those of 0.2."""
    names = {"memories": "feedback", "control": "schedule"}
    return {names.get(what, what): value for what, value in state.items()}


def _fitting(engine: Engine, state: Mapping[str, Any], not_taken: NotTaken) -> dict[str, Any]:
    """The state without the tensors that do not fit."""
    missing = set(not_taken.missing_keys)
    known = {entry.spec.name for entry in engine.plan.entries} - missing

    learners = [entry for entry in engine.plan.entries if any(link.learns for link in entry.codec.stages)]
    anew = any(entry.spec.name in missing for entry in learners)
    learned = {} if anew else {name: own for name, own in state["learned"].items() if name in known}
    fitting = {**state, "learned": learned, "finite_steps": 0 if anew else state["finite_steps"]}
    if state.get("gathered"):
        ranks = [feedback_of(own, known) for own in state["ranks"]]
        return {**fitting, "ranks": ranks, "shared": feedback_of(state["shared"], known)}
    return {**fitting, "feedback": feedback_of(state["feedback"], known)}


def _pending(engine: Engine, schedule: Mapping[str, Any] | None) -> Observation:
    """What this rank had observed and not yet told; in a world of another size all ranks tell the same."""
    told = (
        [Observation(**observation) for observation in schedule["pending"]] if schedule else [Observation()]
    )
    if len(told) == 1:
        return told[0]
    return told[engine.group.rank] if len(told) == engine.group.size else merged(told, lambda rank: rank)


def _stamp(engine: Engine) -> dict[str, Any]:
    engine.catch_up()
    return {
        "version": STATE_VERSION,
        "world": engine.group.size,
        "step": engine.step,
        "finite_steps": engine.finite_steps,
        "seed": engine.seed,
        "plan": [str(entry) for entry in engine.plan.entries],
    }


def _learned(engine: Engine) -> Learned:
    """What the stages have learnt, as tensors of their own."""
    return {
        name: {what: t.clone(memory_format=torch.contiguous_format) for what, t in sorted(known.items())}
        for name, known in sorted(engine.learned.items())
    }


def _gathered_learned(engine: Engine) -> Learned:
    """What was learnt, with what owners alone hold: others hold zeros, so the sum over the ranks is exact."""
    learned = _learned(engine)
    shapes = {name: {what: list(t.shape) for what, t in known.items()} for name, known in learned.items()}
    engine.compare_digests(digest_of(shapes), "learned of what was learnt")
    for known in learned.values():
        for what, tensor in known.items():
            if what.startswith(OWNED):
                engine.group.all_reduce(tensor).wait()
    return learned


def _owned_only(learned: Learned, rank: int, world: int) -> Learned:
    """What was learnt, for one rank of a world that may have another size: what others own becomes zeros."""

    def keep(name: str, what: str) -> bool:
        return not what.startswith(OWNED) or owner(name, world) == rank

    return {
        name: {what: t if keep(name, what) else torch.zeros_like(t) for what, t in known.items()}
        for name, known in learned.items()
    }


def _check(engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
    if not isinstance(state, Mapping) or "version" not in state:
        raise StateError("this is no state of a thinwire compressor: pass what state_dict() returned")
    if state["version"] != STATE_VERSION:
        raise StateError(
            f"the state has version {state['version']}, this thinwire reads version {STATE_VERSION}: "
            "load it with the thinwire that wrote it"
        )
    not_taken = _compared(engine, state, strict)
    theirs = (state["schedule"] or {}).get("text")
    ours = schedule_text(engine.plan.schedule)
    if theirs is not None and theirs != ours:
        raise StateError(
            f'the state was made under schedule "{theirs}", this compressor has "{ours}": '
            "pass the same schedule"
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


def _compared(engine: Engine, state: Mapping[str, Any], strict: bool) -> NotTaken:
    """The tensors whose lines in the two plans differ; raises if that is not allowed.

    A gathered state fits other routes too: the route may follow from the number of ranks.
    """
    ours, theirs = [str(entry) for entry in engine.plan.entries], list(state["plan"])
    if state.get("gathered"):
        ours, theirs = ([line.rpartition(" | ")[0] for line in lines] for lines in (ours, theirs))
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
