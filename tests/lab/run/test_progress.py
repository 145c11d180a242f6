"""Curves for TensorBoard: every loss, scores, what the compressor reports, histograms."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from thinwire.errors import LabError
from thinwire_lab.run.progress import Silent, logged
from thinwire_lab.run.recipe import digits

PLACE = {"step": 2, "epoch": 0.1, "seconds": 1.0}
LOOK = {"layer": "fc.weight", "limit": 0.1, "own": [1, 5, 1], "mean": [0, 7, 0]}
SCORES = {"score": 0.9, "test_loss": 0.3, "bytes": 100.0, "scalars": {"thinwire/ratio": 12.0}}
ROWS: tuple[dict[str, Any], ...] = (
    {"row": "step", **PLACE, "loss": 0.25, "losses": [0.5, 0.25]},
    {"row": "histograms", **PLACE, "layers": [LOOK]},
    {"row": "evaluation", **PLACE, **SCORES},
)


def test_rows_become_curves(tmp_path: Path) -> None:
    reader = pytest.importorskip(
        "tensorboard.backend.event_processing.event_accumulator",
        reason="TensorBoard is not installed: pip install tensorboard",
    )
    with logged(Silent(), tmp_path) as progress:
        progress.begin(digits(), "accuracy", 2)
        for row in ROWS:
            progress.row(row)
    events = reader.EventAccumulator(str(tmp_path / "terngrad-seed0"))
    events.Reload()
    assert [(point.step, point.value) for point in events.Scalars("training/loss")] == [(1, 0.5), (2, 0.25)]
    assert events.Scalars("thinwire/ratio")[0].value == 12
    assert events.Scalars("sent/bytes")[0].value == 100
    assert events.Histograms("gradient own/fc.weight")[0].histogram_value.num == 7


def test_without_tensorboard_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)  # as if it were not there
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    with pytest.raises(LabError, match="pip install tensorboard"), logged(Silent(), tmp_path):
        pass


def test_without_a_folder_nothing_is_written() -> None:
    silent = Silent()
    with logged(silent, None) as progress:
        assert progress is silent
