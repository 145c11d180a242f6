"""FSDP2, local steps and an exchange of one's own: the examples train, and send far fewer bytes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from example_job import EXAMPLES, Server, run


@pytest.mark.parametrize(("name", "ratio"), [("fsdp2", 4.0), ("diloco", 40.0), ("exchange", 4.0)])
def test_the_example_trains_with_fewer_bytes(
    scripts: Server, tmp_path: Path, name: str, ratio: float
) -> None:
    text = run(scripts, tmp_path, f"{name}.py")[0]
    found = re.search(r"accuracy ([\d.]+)", text)
    assert found is not None, text
    assert float(found[1]) > 0.9  # guessing gives 0.1
    ratios = [float(number) for number in re.findall(r"([\d.]+)x fewer", text)]
    assert max(ratios) > ratio


@pytest.mark.parametrize(("name", "lines"), [("fsdp2", 1), ("diloco", 2), ("exchange", 2)])
def test_few_lines_are_thinwires(name: str, lines: int) -> None:
    """Besides the import, the report and the end."""
    text = (EXAMPLES / f"{name}.py").read_text().split('"""', 2)[2]
    own = [line for line in text.splitlines() if re.search(r"tw\.|diloco\.step|exchange\.mean_", line)]
    assert len(own) == lines, own
