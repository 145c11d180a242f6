"""What a user reads when an exchange fails, for everything that ranks can say to each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thinwire.clock import COMPARE, Clock
from thinwire.errors import PeerError, PlanError
from thinwire.groups.base import LEFT, UNREACHED, FailureReport
from thinwire.groups.thread import ThreadGroup
from thinwire.hooks.failures import explain
from thinwire.hooks.worker import Worker, call_measuring

BROKEN = RuntimeError("connection reset")
SAW = FailureReport("travel", "RuntimeError: connection reset", own=False)
WAITED = FailureReport("travel", "RuntimeError: Timed out waiting 8000ms for recv operation", own=False)


class Hearing(ThreadGroup):
    """A rank of four whose peers have said what is given; users know them by other numbers."""

    def __init__(self, failures: Mapping[int, FailureReport | None]) -> None:
        rank_1 = ThreadGroup.make(4)[1]
        super().__init__(rank_1.rank, rank_1.size, rank_1._table)
        self.failures, self.said = failures, list[FailureReport]()

    def report_failure(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        self.said.append(failure)
        return {self.rank: failure, **self.failures}

    def global_rank(self, rank: int) -> int:
        return 10 * rank


@pytest.mark.parametrize(
    ("failures", "sentence"),
    [
        (
            {0: SAW, 2: FailureReport("encode", "ValueError: no", own=True), 3: None},
            'rank 20 failed in operation "encode": ValueError: no',
        ),
        (
            {0: SAW, 2: None},
            'failed in operation "travel": rank 20 closed the connection or died; look at the log',
        ),
        ({0: None, 2: SAW, 3: None}, "rank 0, 30 closed the connection or died"),
        ({0: SAW, 2: SAW}, 'failed in operation "travel": no sign of life from rank 30; look at the log'),
        ({2: SAW}, "no sign of life from rank 0, 30"),
        ({0: SAW, 2: FailureReport(LEFT, "closed", own=True), 3: SAW}, "rank 20 takes part no more (closed)"),
        (
            {0: SAW, 2: FailureReport(LEFT, "closed", own=True), 3: None},
            "rank 30 closed the connection or died",
        ),
        ({0: WAITED, 2: FailureReport(LEFT, "closed", own=True)}, "no sign of life from rank 30; look"),
        ({0: SAW, 2: FailureReport(LEFT, "closed", own=True)}, "rank 20 takes part no more (closed)"),
        ({0: SAW, 2: UNREACHED, 3: SAW}, "no sign of life from rank 20 since the start"),
        ({0: SAW, 2: UNREACHED}, "no sign of life from rank 30; look"),
        ({0: UNREACHED, 2: UNREACHED, 3: UNREACHED}, "all 4 ranks are alive"),
        (
            {0: SAW, 2: SAW, 3: SAW},
            "all 4 ranks are alive: RuntimeError: connection reset; a link broke or was too slow",
        ),
    ],
)
def test_an_error_on_the_wire_names_who_is_to_blame(
    failures: Mapping[int, FailureReport | None], sentence: str
) -> None:
    group = Hearing(failures)
    explained = explain(BROKEN, "travel", group)
    assert isinstance(explained, PeerError)
    assert sentence in str(explained)
    assert explained.__cause__ is BROKEN
    assert group.said == [SAW]


@pytest.mark.parametrize(
    ("error", "operation"), [(RuntimeError("no memory"), "decode"), (KeyError("x"), "travel")]
)
def test_an_error_of_this_rank_is_raised_as_it_is_and_told_to_the_peers(
    error: Exception, operation: str
) -> None:
    group = Hearing({0: SAW, 2: SAW, 3: SAW})
    assert explain(error, operation, group) is error
    (failure,) = group.said
    assert failure.own
    assert failure.operation == operation


def test_ranks_that_disagree_on_the_plan_need_no_hearing() -> None:
    group = Hearing({})
    error = PlanError("ranks disagree")
    assert explain(error, COMPARE, group) is error
    assert group.said == []


def test_what_a_measurement_of_auto_meets_on_the_wire_is_the_peers_fault() -> None:
    """Whatever the worker did before: a look at the link comes between two steps."""
    clock, group = Clock(), Hearing({0: SAW, 2: None, 3: SAW})
    worker = Worker(lambda error: explain(error, clock.current, group))

    def broken() -> None:
        raise BROKEN

    with pytest.raises(
        PeerError, match='operation "measuring for auto": rank 20 closed the connection or died'
    ):
        call_measuring(worker, clock, broken)
    worker.close()
