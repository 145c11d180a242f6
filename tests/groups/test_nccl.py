"""A group over NCCL, whose collectives nobody waits for: the witness ends them when a peer has died."""

from __future__ import annotations

import threading
from types import SimpleNamespace

import pytest

from thinwire.groups import torch as module
from thinwire.groups.base import LEFT, FailureReport
from thinwire.groups.torch import TorchGroup

FAILED = FailureReport("encode", "CUDA out of memory", own=True)


def aborted(
    monkeypatch: pytest.MonkeyPatch, backends: set[str], ended: dict[int, FailureReport | None]
) -> bool:
    """Whether a look of the witness' thread ends the group's kernels."""
    calls: list[str] = []
    roll = SimpleNamespace(open_calls={}, passed_by=None)
    group = object.__new__(TorchGroup)
    group._parent, group._over, group._outside = None, False, False  # type: ignore[assignment]
    group._witness = SimpleNamespace(ended=lambda: ended, news=threading.Condition(), roll=roll)  # type: ignore[assignment]
    monkeypatch.setattr(module, "backends_of", lambda group: backends)
    monkeypatch.setattr(TorchGroup, "abort", lambda self: calls.append("abort"))
    group._look()
    return bool(calls)


def test_kernels_end_when_a_peer_died_or_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else they would run until NCCL's watchdog ends the process, and nobody would say who died."""
    assert aborted(monkeypatch, {"nccl"}, {1: None})
    assert aborted(monkeypatch, {"gloo", "nccl"}, {1: FAILED})


def test_they_run_on_while_all_are_well(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not aborted(monkeypatch, {"nccl"}, {})
    assert not aborted(monkeypatch, {"nccl"}, {1: FailureReport(LEFT, "", own=True)})
    assert not aborted(monkeypatch, {"nccl"}, {1: FailureReport("merge", "timed out", own=False)})


def test_gloo_waits_and_needs_no_such_end(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not aborted(monkeypatch, {"gloo"}, {1: None})
