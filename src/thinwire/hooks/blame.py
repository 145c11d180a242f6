"""Turns a failed exchange into one error that names the rank and the operation, on every rank."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from thinwire.clock import COMPARE, CONNECT, NODE, OUTSIDE, ROLL_CALL
from thinwire.errors import DriftError, PeerError, PlanError
from thinwire.groups.base import ABSENT, LEFT, UNREACHED, Confession, Group

_ON_THE_WIRE = frozenset({"agree", "travel", NODE, COMPARE, CONNECT, OUTSIDE, ROLL_CALL})

_STEPS = "look at its log; all ranks must make the same number of steps, or use torch's Join"


def explain(error: Exception, operation: str, group: Group) -> Exception:
    """The error to raise for an exchange that failed with `error` in `operation`.

    1. Ranks that disagree on plans or parameters, or did not all come, know it already: nothing to find out.
    2. An error on the wire is most likely a peer's: every rank says what it saw; the silent one is to blame.
    3. Any other error is this rank's own: the peers are told, and see it named.
    """
    if isinstance(error, PlanError | DriftError) and operation in (COMPARE, ROLL_CALL):
        return error
    if isinstance(error, PeerError) and operation == CONNECT:
        return error
    own = operation not in _ON_THE_WIRE or not isinstance(error, RuntimeError)  # what backends raise
    confessions = group.confess(Confession(operation, f"{type(error).__name__}: {error}", own))
    if own:
        return error
    explained = PeerError(_sentence(confessions, operation, group))
    explained.__cause__ = error
    return explained


def _sentence(confessions: Mapping[int, Confession | None], operation: str, group: Group) -> str:
    spoken = [
        (rank, confession)
        for rank, confession in sorted(confessions.items())
        if confession is not None and confession.own
    ]
    for rank, confession in spoken:
        if confession.operation not in (LEFT, ABSENT):
            named = group.global_rank(rank)
            return f'rank {named} failed in operation "{confession.operation}": {confession.text}'
    failed = f'exchange failed in operation "{operation}"'
    advice = "look at the log of that worker, then restart the job from its last checkpoint"
    gone = [rank for rank, confession in confessions.items() if confession is None]
    if gone:
        return f"{failed}: {_ranks(gone, group)} closed the connection or died; {advice}"
    absent = group.absent()
    if absent and (operation == ROLL_CALL or any(said.operation == ABSENT for _, said in spoken)):
        return _absence(*absent, group)
    silent = set(range(group.size)) - set(confessions)
    waited = any(confession is not None and confession.waited for confession in confessions.values())
    if not (silent and waited):  # else who left had done its part, for its connections did not fail
        for rank, confession in spoken:
            named = group.global_rank(rank)
            return f"{failed}: rank {named} takes part no more ({confession.text}); {_STEPS}"
    if silent:
        return f"{failed}: no sign of life from {_ranks(silent, group)}; {advice}"
    unreached = [rank for rank, confession in confessions.items() if confession is UNREACHED]
    if 0 < len(unreached) < max(2, group.size - 1):  # if nobody was reached that is a firewall, not a fault
        return f"{failed}: no sign of life from {_ranks(unreached, group)} since the start; {advice}"
    mine = confessions[group.rank]
    return (
        f"{failed} although all {group.size} ranks are alive: {mine.text if mine else ''}; "
        "a link broke or was too slow for the group's timeout"
    )


def _absence(what: str, absent: list[int], group: Group) -> str:
    present = set(range(group.size)) - set(absent)
    return (
        f"{_ranks(absent, group)} did not call {what}, {_ranks(present, group)} did: call it on every rank, "
        "between the same two steps, outside of `if rank == 0:`; what it returns may be saved by one of them"
    )


def _ranks(ranks: Iterable[int], group: Group) -> str:
    return "rank " + ", ".join(str(group.global_rank(rank)) for rank in sorted(ranks))
