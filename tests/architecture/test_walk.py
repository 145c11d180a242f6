"""The path of a bucket: the list in ARCHITECTURE.md is the one that happens, and it is short."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from walk import walk_of

PAGE = Path(__file__).parents[2] / "ARCHITECTURE.md"
MAX_FILES, MAX_FUNCTIONS = 25, 80  # of a bucket of plain terngrad
# Calls that go back up, and why.
BACK = {
    ("hooks/worker.py", "hooks/buckets.py"),  # a queued job comes back on the worker's thread
    ("hooks/worker.py", "hooks/compressor.py"),  # so does whoever waits for the queue
    ("hooks/worker.py", "hooks/ddp.py"),  # the future that DDP waits for
    ("codecs/levels.py", "codecs/terngrad.py"),  # what a coder does to rows, behind the packer they share
    ("codecs/coder.py", "codecs/sign.py"),  # payloads that are decoded one by one, and added up
    ("codecs/coder.py", "codecs/topk.py"),
    ("codecs/coder.py", "codecs/rangefloat.py"),
}


def reading_order() -> list[str]:
    """The paths in the list "The path of a bucket", in order."""
    walk = PAGE.read_text().partition("## The path of a bucket")[2].partition("\n## ")[0]
    return re.findall(r"[\w/]+\.py", walk.partition("```")[2].partition("```")[0])


@pytest.mark.parametrize("codec", ["dense", "terngrad", "topk:0.1", "fft:0.5", "powersgd:2", "sign"])
def test_every_call_goes_down_the_list(codec: str) -> None:
    walk, order = walk_of(codec), reading_order()
    assert len(order) == len(set(order))
    missing = [module for module in walk.modules if module not in order]
    assert missing == [], "ARCHITECTURE.md does not name what a bucket passes through"
    assert set(walk.returns(order)) <= BACK


def test_the_path_of_plain_terngrad_is_short() -> None:
    walk = walk_of("terngrad")
    assert len(walk.modules) <= MAX_FILES, walk.modules
    assert len(walk.functions) <= MAX_FUNCTIONS, walk.functions


def test_the_list_names_files_that_exist() -> None:
    source = PAGE.parent / "src" / "thinwire"
    assert [path for path in reading_order() if not (source / path).is_file()] == []
