"""watch: a line every so many steps, on the first rank alone unless others ask for it."""

from __future__ import annotations

import re

import pytest
from launch import Teams
from training import fit, mlp, wrap

from thinwire.errors import PlanError


def watched(every: int, everybody: bool) -> list[str]:
    lines: list[str] = []
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None
        if everybody:
            it.compressor.watch(every, lines.append)
        else:
            it.compressor.watch(every)
        fit(it.model, 6)
    return lines


def test_a_line_has_codec_ratio_bytes_and_time(teams: Teams) -> None:
    for lines in teams(2).run(watched, 3, True):
        assert len(lines) in (1, 2)  # the last step may be counted behind its backward pass
        assert re.fullmatch(
            r"step \d: terngrad, [\d.]+x fewer bytes \([\d.e-]+ MB a step\), \d+ ms a step", lines[-1]
        )


def nonsense() -> None:
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None
        with pytest.raises(PlanError, match="at least 1 step"):
            it.compressor.watch(0)


def test_less_than_a_step_is_refused(teams: Teams) -> None:
    teams(2).run(nonsense)
