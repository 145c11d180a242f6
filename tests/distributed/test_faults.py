"""The short form of the fault driver: an injection of most kinds, none of which may end badly."""

from __future__ import annotations

import pytest
from faults import KINDS, inject
from launch import Server
from verdict import blamed

# Seeds are chosen so that the fault meets a run, not its end. The slow kinds are in the long form.
FAST = (
    "kill in run",
    "pause",
    "forward",
    "backward",
    "between",
    "exchange",
    "codec",
    "buckets",
    "disk",
    "truncated",
)


@pytest.mark.parametrize("kind", FAST)
def test_an_injected_fault_ends_well(server: Server, kind: str) -> None:
    verdict = inject(server, kind, 0)
    assert not verdict.outcome.startswith("bad"), verdict
    assert verdict.hangs == 0
    assert verdict.named == verdict.survivors


def test_every_kind_of_fault_is_injected_300_times_in_all() -> None:
    assert sum(kind.long for kind in KINDS.values()) >= 300


@pytest.mark.parametrize(
    ("text", "ranks"),
    [
        ("rank 1, 3 closed the connection or died; look at the log", {1, 3}),
        ("no sign of life from rank 2; look", {2}),
        ("ranks disagree on their plans: rank 0 and rank 1, 2 differ; build the same", {0, 1, 2}),
        ("rank 1 did not call compress (or ddp_hook) within 8 s: All of rank 0, 1, 2 must", {1}),
        ("[gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:28041", set()),
    ],
)
def test_whom_an_error_blames(text: str, ranks: set[int]) -> None:
    assert blamed(text) == ranks
