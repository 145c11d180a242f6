"""The curves are there, a point every five steps; without TensorBoard the example says what to do."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
from example_job import EXAMPLES, Server, run


def test_the_curves_can_be_read(scripts: Server, tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed: pip install tensorboard",
    )
    assert "curves in curves" in run(scripts, tmp_path, "tensorboard_log.py", "curves")[0]
    events = reader.EventAccumulator(str(tmp_path / "curves"))
    events.Reload()
    ratios = events.Scalars("thinwire/ratio")
    assert [point.step for point in ratios] == [5, 10, 15, 20, 25, 30]
    assert all(point.value > 5 for point in ratios)
    tags = events.Tags()["scalars"]
    assert {"training/loss", "thinwire/bytes_per_step", "thinwire/relative_error/2.weight"} <= set(tags)
    assert any(tag.startswith("thinwire/seconds_per_step/") for tag in tags)


def test_without_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(SystemExit, match=r"TensorBoard is not installed .* pip install tensorboard"):
        runpy.run_path(str(EXAMPLES / "tensorboard_log.py"), run_name="__main__")
