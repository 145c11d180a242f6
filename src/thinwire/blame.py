"""Turns a failed exchange into one error that names the rank and the stage, on every rank."""

from __future__ import annotations

from collections.abc import Mapping

from thinwire.errors import PeerError, PlanError
from thinwire.groups.base import Group, Note

_ON_THE_WIRE = frozenset({"agree", "travel", "compare plans"})


def explain(error: Exception, stage: str, group: Group) -> Exception:
    """The error to raise for an exchange that failed with `error` in `stage`.

    1. Ranks that disagree on the plan all know it already: nothing to find out.
    2. An error on the wire is most likely a peer's: every rank says what it saw, those that stay silent are dead.
    3. Any other error is this rank's own: the peers are told, and see it named.
    """
    if isinstance(error, PlanError):
        group.abort()
        return error
    own = stage not in _ON_THE_WIRE
    notes = group.confess(Note(stage, str(error), own))
    if own:
        return error
    explained = PeerError(_sentence(notes, stage, group))
    explained.__cause__ = error
    return explained


def _sentence(notes: Mapping[int, Note], stage: str, group: Group) -> str:
    for rank, note in sorted(notes.items()):
        if note.own:
            return f'rank {rank} failed in stage "{note.stage}": {note.text}'
    silent = sorted(set(range(group.size)) - set(notes))
    if silent:
        ranks = ", ".join(map(str, silent))
        return (
            f'exchange failed in stage "{stage}": no sign of life from rank {ranks} of {group.size}; '
            "look at the log of that worker, then restart the job from its last checkpoint"
        )
    return (
        f'exchange failed in stage "{stage}" although all {group.size} ranks are alive: {notes[group.rank].text}; '
        "a link broke or was too slow for the group's timeout"
    )
