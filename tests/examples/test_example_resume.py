"""Killed with SIGKILL and run again, the example ends with the bits of a run that nobody stopped."""

from __future__ import annotations

import os
import re
import select
import signal
from pathlib import Path

import torch
from example_job import END_S, Job, Server, run

NAME = "resume_after_kill.py"


def digests(texts: list[str]) -> set[str]:
    """Of the parameters, from all ranks."""
    return {digest for text in texts for digest in re.findall(r"parameters (\w+)", text)}


def test_a_killed_run_goes_on_with_the_same_bits(scripts: Server, tmp_path: Path) -> None:
    straight = digests(run(scripts, tmp_path, NAME, "straight.pt"))
    assert len(straight) == 1
    with Job(scripts, tmp_path, NAME, "killed.pt") as job:
        job.wait_for("step 17")  # two steps behind the checkpoint of step 15
        job.kill()
        assert "parameters" not in job.text()
    again = run(scripts, tmp_path, NAME, "killed.pt")
    first = re.search(r"step (\d+)", again[0])
    assert first is not None
    assert 15 <= int(first[1]) < 40  # it went on, it did not begin anew
    assert digests(again) == straight


def test_nobody_leaves_before_the_last_file_is_there(scripts: Server, tmp_path: Path) -> None:
    """Launchers start again only those that are there: rank 0 dies while it saves, and rank 1 notices."""
    run(scripts, tmp_path, NAME, "run.pt")
    whole = torch.load(tmp_path / "run.pt", weights_only=True)
    torch.save({**whole, "step": 35}, tmp_path / "run.pt")  # one more file to come
    os.mkfifo(tmp_path / "run.new")
    reader = os.open(tmp_path / "run.new", os.O_RDONLY | os.O_NONBLOCK)
    try:
        with Job(scripts, tmp_path, NAME, "run.pt") as job:
            assert select.select([reader], [], [], END_S)[0], job.text()  # it writes more than a pipe holds
            job.hit(0)
            codes = job.codes()
            assert codes[0] == -signal.SIGKILL
            assert codes[1] != 0, job.text(1)
    finally:
        os.close(reader)


def test_without_a_file_it_says_what_it_wants(scripts: Server, tmp_path: Path) -> None:
    with Job(scripts, tmp_path, NAME, world=1) as job:
        assert job.codes() == [1]
        assert "name one file for the checkpoint" in job.text()
