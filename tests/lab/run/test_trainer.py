"""The losses of a baseline on their way to a guard: told by rows, carried by the job, read at every step."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from thinwire_lab.run.launch import TrainingJob, read_training_job
from thinwire_lab.run.recipe import digits
from thinwire_lab.run.trainer import ReferenceLosses

LOSSES = ReferenceLosses(((2, 2.0), (4, 1.0)))


def test_losses_are_those_of_the_step_rows() -> None:
    rows = [{"row": "step", "step": 2, "loss": 2.0}, {"row": "evaluation", "step": 3, "loss": 9.0}]
    assert ReferenceLosses.of_rows([*rows, {"row": "step", "step": 4, "loss": 1.0}]) == LOSSES


def test_a_job_keeps_them(tmp_path: Path) -> None:
    job = TrainingJob(digits(), "task", counters=False, link_rate=None, reference=LOSSES)
    path = tmp_path / "job.json"
    path.write_text(json.dumps(job.to_dict()))
    assert read_training_job(path) == job


@pytest.mark.parametrize(("step", "loss"), [(1, 2.0), (2, 2.0), (3, 1.5), (4, 1.0), (51, 1.0)])
def test_between_two_losses_the_reference_lies_between_them(step: int, loss: float) -> None:
    assert LOSSES.at(step) == loss


def test_without_a_baseline_there_is_none() -> None:
    assert ReferenceLosses().at(3) is None
