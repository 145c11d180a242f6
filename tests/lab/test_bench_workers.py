"""Benches that open a group of their own really run: two workers, a small gradient."""

from __future__ import annotations

import json
import subprocess
import sys

from thinwire.lab.link_speed import measure_link


def test_the_exchange_bench_runs() -> None:
    options = [
        "--hosts",
        "2",
        "--rate",
        "10gbit",
        "--network",
        "emulated",
        "--numel",
        "4096",
        "--repeats",
        "1",
    ]
    argv = [
        sys.executable,
        "-m",
        "thinwire",
        "bench",
        "exchange",
        *options,
        "--codecs",
        "dense,terngrad",
        "--json",
    ]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=120, check=False)
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert {row["codec"] for row in rows} >= {"dense", "terngrad"}, done.stderr


def test_the_link_is_measured() -> None:
    speed = measure_link()
    assert speed.latency_ms > 0
    assert speed.gbit_per_s > 0
