"""The short form of the fault driver for FSDP2 and local steps: fast kinds, none of which may end badly."""

from __future__ import annotations

import pytest
from faults_reach import COUNT, KINDS, fault_of, inject
from launch import Server


@pytest.mark.parametrize("seed", [0, 2, 4, 5, 7, 9])
def test_an_injected_fault_ends_well(server: Server, seed: int) -> None:
    verdict = inject(server, fault_of(seed))
    assert not verdict.outcome.startswith("bad"), verdict
    assert verdict.hangs == 0
    assert verdict.named == verdict.survivors


def test_every_kind_meets_both_doors() -> None:
    met = {(fault_of(seed).kind, fault_of(seed).door) for seed in range(COUNT)}
    assert len(met) == 2 * len(KINDS)
