"""The service: health, metrics, JSON logs and a graceful stop, of a real process; and a load of clients."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import thinwire_private as private
from thinwire.errors import LinkError
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import QuantizedModel, write_twq
from thinwire_private.service import Endpoint, metrics_text


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=60) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@contextmanager
def serving(folder: Path, graph: Graph, *more: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """(process, address) of `thinwire private serve`."""
    write_twq(folder / "m.twq", QuantizedModel(graph))
    words = ["private", "serve", "--model", str(folder / "m.twq"), "--listen", "127.0.0.1:0", *more]
    process = subprocess.Popen(
        [sys.executable, "-c", "from thinwire.cli import main; main()", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        yield process, process.stdout.readline().split(" on ")[1].split(",")[0]
    finally:
        process.kill()
        process.communicate()


def test_a_served_process_tells_health_and_counts_and_stops(
    small: Graph, pictures: IntArray, tmp_path: Path
) -> None:
    with serving(tmp_path, small, "--metrics", "127.0.0.1:0", "--json", "--grace", "5") as (process, address):
        assert process.stderr is not None
        lines = [process.stderr.readline()]
        base = json.loads(lines[0])["event"].rpartition(" ")[2]
        assert get(f"{base}/health") == (200, '{"status": "ok"}\n')
        with private.Client(address) as client:
            np.testing.assert_array_equal(client.predict(pictures[:2]), oracle.run(small, pictures[:2]))
        assert get(f"{base}/nothing")[0] == 404
        process.send_signal(signal.SIGTERM)
        lines += process.communicate(timeout=120)[1].splitlines()
        assert process.returncode == 0
    events = [json.loads(line) for line in lines]
    assert all(set(event) == {"time", "event"} for event in events)
    texts = [event["event"] for event in events]
    assert any("ends after 1 queries" in text for text in texts)
    assert texts[-1] == "stopped"


def test_metrics_count_queries_and_failures(small: Graph, pictures: IntArray) -> None:
    with private.Server(small, timeout_s=60.0) as server, Endpoint(server, ("127.0.0.1", 0)) as endpoint:
        with private.Client(server.address) as client:
            client.predict(pictures[:2])
        with pytest.raises(LinkError):
            private.Client(server.address, expected="01" * 32).__enter__()
        while not (now := server.status())["failed_total"] or now["sessions"] or now["waiting"]:
            time.sleep(0.01)
        text = get(f"http://{endpoint.address[0]}:{endpoint.address[1]}/metrics")[1]
        for line in ("queries_total 1", "pictures_total 2", "failed_total 1", "sessions 0"):
            assert f"thinwire_private_{line}\n" in text
        assert text == metrics_text({**server.status(), "uptime_seconds": _uptime(text)})
        endpoint.stopping.set()
        assert get(f"http://{endpoint.address[0]}:{endpoint.address[1]}/health")[0] == 503


def _uptime(text: str) -> float:
    return float(
        next(line for line in text.splitlines() if "uptime_seconds " in line and "#" not in line).split()[1]
    )


def test_metrics_stay_on_this_machine(small: Graph) -> None:
    server = private.Server(small)
    with pytest.raises(LinkError, match=r"use 127\.0\.0\.1"):
        Endpoint(server, ("0.0.0.0", 0))
