"""netlab: a command on every host, rows of what they sent, and the exit code of the host that failed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from printed import Call

from thinwire_lab.net.netlab import available

OBSTACLE = available()
pytestmark = pytest.mark.skipif(OBSTACLE is not None, reason=f"netlab cannot run here: {OBSTACLE}")


def test_json_gives_one_row_per_host_and_nothing_else(call: Call) -> None:
    printed = call("netlab", "--hosts", "2", "--json", "--", "echo", "[x]")
    rows = printed.rows()
    assert [(row["host"], row["returncode"]) for row in rows] == [(0, 0), (1, 0)]
    assert {"tx_bytes", "tx_packets", "rx_bytes", "rx_packets"} <= rows[0].keys()
    assert sorted(printed.err.splitlines()) == ["[host 0] [x]", "[host 1] [x]"]


def test_a_failed_host_is_shown_even_if_its_output_was_not(call: Call, tmp_path: Path) -> None:
    """Opening a pipe waits for its other end: host 1 fails when host 0 has spoken."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    script = f"echo from $RANK; [ $RANK = 0 ] && exec sleep 600 3> {pipe}; : < {pipe}; exit 3"
    printed = call("netlab", "--hosts", "2", "--rank0", "--", "sh", "-c", script)
    assert printed.code == 3
    assert "[host 0] from 0" in printed.out
    assert "[host 1]" not in printed.out
    assert "host 1 ended with exit code 3" in printed.err
    assert "[host 1] from 1" in printed.err
    assert "stopped" in printed.out


def test_a_program_that_does_not_exist_is_refused(call: Call) -> None:
    printed = call("netlab", "--hosts", "1", "--", "no-such-program")
    assert (printed.code, printed.out) == (2, "")
    assert "no program 'no-such-program'" in printed.err
