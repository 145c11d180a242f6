"""The README's diff as two files: it is small, and training is as good with it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path

from example_job import EXAMPLES, Server, run


def accuracy_of(text: str) -> float:
    found = re.search(r"accuracy ([\d.]+)", text)
    assert found is not None, text
    return float(found[1])


def test_after_trains_as_well_and_says_what_auto_does(scripts: Server, tmp_path: Path) -> None:
    before, after = (run(scripts, tmp_path, f"ddp_{name}.py")[0] for name in ("before", "after"))
    assert accuracy_of(before) > 0.9  # guessing gives 0.1
    assert accuracy_of(after) > accuracy_of(before) - 0.05
    assert re.search(r"60 steps", after), after
    assert "auto" in after


def test_the_diff_is_what_the_readme_promises() -> None:
    """One import, one line behind the model, and a report: nothing in the loop changes."""
    before, after = (
        (EXAMPLES / f"ddp_{name}.py").read_text().split('"""', 2)[2] for name in ("before", "after")
    )
    changes = [line for line in difflib.ndiff(before.splitlines(), after.splitlines()) if line[0] in "+-"]
    assert [line[2:].strip() for line in changes if line[2:].strip()] == [
        "import thinwire as tw",
        'compressor = tw.compress(model, "auto")',
        "print(compressor.report())",
        "compressor.close()",
    ]
    assert all(line.startswith("+") for line in changes)
