"""A bucket's walk goes one way: the list in ARCHITECTURE.md is the one that happens."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from walk import walk_of

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
# Calls that go back up, and why.
BACK = {
    ("hooks/worker.py", "hooks/compressor.py"),  # a queued job comes back on the worker's thread
    ("hooks/worker.py", "hooks/failures.py"),  # so does who listens while DDP is in a collective of its own
    ("hooks/compressor.py", "hooks/ddp.py"),  # the future that DDP waits for
    (
        "codecs/topk.py",
        "codecs/coder.py",
    ),  # what was selected is packed by a coder of that kind
    ("groups/wrappers.py", "groups/wrappers.py"),  # a wrapper hands the act it counts back, to be started
}


def reading_order() -> list[str]:
    """The paths in the list "The walk of a bucket", in order."""
    walk = PAGE.read_text().partition("## The walk of a bucket")[2].partition("\n## ")[0]
    return re.findall(r"[\w/]+\.py", walk.partition("```")[2].partition("```")[0])


@pytest.mark.parametrize("codec", ["dense", "terngrad", "topk:0.1", "fft:0.5", "powersgd:2", "sign"])
def test_every_call_goes_down_the_list(codec: str) -> None:
    walk, order = walk_of(codec), reading_order()
    assert len(order) == len(set(order))
    missing = [module for module in walk.modules if module not in order]
    assert missing == [], "ARCHITECTURE.md does not name what a bucket passes through"
    assert set(walk.returns(order)) <= BACK


def test_the_list_names_files_that_exist() -> None:
    source = PAGE.parent / "src" / "thinwire"
    assert [path for path in reading_order() if not (source / path).is_file()] == []
