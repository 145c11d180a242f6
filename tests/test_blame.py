"""What a user reads when an exchange fails, for everything that ranks can say to each other."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from thinwire.blame import explain
from thinwire.clock import COMPARE
from thinwire.errors import PeerError, PlanError
from thinwire.groups.base import LEFT, UNREACHED, Note
from thinwire.groups.thread import ThreadGroup

BROKEN = RuntimeError("connection reset")
SAW = Note("travel", "RuntimeError: connection reset", own=False)


class Hearing(ThreadGroup):
    """A rank of four whose peers have said what is given; users know them by other numbers."""

    def __init__(self, notes: Mapping[int, Note | None]) -> None:
        rank_1 = ThreadGroup.make(4)[1]
        super().__init__(rank_1.rank, rank_1.size, rank_1._table)
        self.notes, self.said = notes, list[Note]()

    def confess(self, note: Note) -> Mapping[int, Note | None]:
        self.said.append(note)
        return {self.rank: note, **self.notes}

    def global_rank(self, rank: int) -> int:
        return 10 * rank


@pytest.mark.parametrize(
    ("notes", "sentence"),
    [
        (
            {0: SAW, 2: Note("encode", "ValueError: no", own=True), 3: None},
            'rank 20 failed in stage "encode": ValueError: no',
        ),
        (
            {0: SAW, 2: None},
            'failed in stage "travel": rank 20 closed the connection or died; look at the log',
        ),
        ({0: None, 2: SAW, 3: None}, "rank 0, 30 closed the connection or died"),
        ({0: SAW, 2: SAW}, 'failed in stage "travel": no sign of life from rank 30; look at the log'),
        ({2: SAW}, "no sign of life from rank 0, 30"),
        ({0: SAW, 2: Note(LEFT, "closed", own=True), 3: SAW}, "rank 20 takes part no more (closed)"),
        ({0: SAW, 2: Note(LEFT, "closed", own=True), 3: None}, "rank 30 closed the connection or died"),
        ({0: SAW, 2: UNREACHED, 3: SAW}, "no sign of life from rank 20 since the start"),
        ({0: SAW, 2: UNREACHED}, "no sign of life from rank 30; look"),
        ({0: UNREACHED, 2: UNREACHED, 3: UNREACHED}, "all 4 ranks are alive"),
        (
            {0: SAW, 2: SAW, 3: SAW},
            "all 4 ranks are alive: RuntimeError: connection reset; a link broke or was too slow",
        ),
    ],
)
def test_an_error_on_the_wire_names_who_is_to_blame(notes: Mapping[int, Note | None], sentence: str) -> None:
    group = Hearing(notes)
    explained = explain(BROKEN, "travel", group)
    assert isinstance(explained, PeerError)
    assert sentence in str(explained)
    assert explained.__cause__ is BROKEN
    assert group.said == [SAW]


@pytest.mark.parametrize(
    ("error", "stage"), [(RuntimeError("no memory"), "decode"), (KeyError("x"), "travel")]
)
def test_an_error_of_this_rank_is_raised_as_it_is_and_told_to_the_peers(error: Exception, stage: str) -> None:
    group = Hearing({0: SAW, 2: SAW, 3: SAW})
    assert explain(error, stage, group) is error
    (note,) = group.said
    assert note.own
    assert note.stage == stage


def test_ranks_that_disagree_on_the_plan_need_no_hearing() -> None:
    group = Hearing({})
    error = PlanError("ranks disagree")
    assert explain(error, COMPARE, group) is error
    assert group.said == []
