"""The losses of a baseline on their way to a guard: told by rows, carried by the job, read at every step."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from thinwire.lab.job import Job, Losses, read_job
from thinwire.lab.recipe import digits
from thinwire.lab.session import losses
from thinwire.lab.train import Worker


def job(reference: Losses) -> Job:
    return Job(digits(), "task", counters=False, link_rate=None, reference=reference)


def test_losses_are_those_of_the_step_rows() -> None:
    rows = [{"row": "step", "step": 2, "loss": 2.0}, {"row": "evaluation", "step": 3, "loss": 9.0}]
    assert losses([*rows, {"row": "step", "step": 4, "loss": 1.0}]) == ((2, 2.0), (4, 1.0))


def test_a_job_keeps_them(tmp_path: Path) -> None:
    written = job(((2, 2.0), (4, 1.0)))
    assert read_job(written.write(tmp_path)) == written


@pytest.mark.parametrize(("steps_done", "loss"), [(0, 2.0), (1, 2.0), (2, 1.5), (3, 1.0), (50, 1.0)])
def test_between_two_losses_the_reference_lies_between_them(steps_done: int, loss: float) -> None:
    """After `steps_done` steps the loss at hand is that of the next one."""
    worker = SimpleNamespace(job=job(((2, 2.0), (4, 1.0))), step=steps_done)
    assert Worker.reference(worker) == loss  # type: ignore[arg-type]


def test_without_a_baseline_there_is_none() -> None:
    assert Worker.reference(SimpleNamespace(job=job(()), step=3)) is None  # type: ignore[arg-type]
