"""The examples of the front ends train with far fewer bytes, and add as few lines as the docs say."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from test_frontends import FRAMEWORKS, launch

EXAMPLES = Path(__file__).parents[2] / "examples"
LINES = {"lightning": 1, "accelerate": 2, "transformers": 2, "ray": 1}  # that a user adds, imports aside


@pytest.mark.parametrize("name", LINES)
def test_the_example_trains_with_fewer_bytes(name: str) -> None:
    script = EXAMPLES / f"train_{name}.py"
    if name in FRAMEWORKS:
        ran = launch(str(script))
    else:
        environment = os.environ | {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
        command = [sys.executable, str(script)]
        ran = subprocess.run(command, capture_output=True, text=True, timeout=600, env=environment)
    assert ran.returncode == 0, ran.stderr[-4000:]
    [accuracy] = re.findall(r"accuracy ([\d.]+)", ran.stdout)
    [ratio] = re.findall(r"([\d.]+)x fewer bytes", ran.stdout)
    assert float(accuracy) > 0.9  # guessing gives 0.1
    assert float(ratio) > 4


@pytest.mark.parametrize(("name", "lines"), LINES.items())
def test_few_lines_are_thinwires(name: str, lines: int) -> None:
    """Besides the import and what shows the ratio."""
    text = (EXAMPLES / f"train_{name}.py").read_text().split('"""', 2)[2]
    own = [line for line in text.splitlines() if re.search(r"thinwire\.\w+\.\w+\(|Compression\(", line)]
    assert 1 <= len(own) <= lines, own
