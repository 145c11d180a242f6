"""Starts the workers of a bench on a network and passes on what they say."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from thinwire.lab.crew import Crew
from thinwire.lab.network import Network

Row = dict[str, Any]


def run_workers(module: str, job: Mapping[str, Any], network: Network, hosts: int) -> Iterator[Row]:
    """The rows of `python -m MODULE JOB_FILE` on every host: "turn" (progress) and "result"."""
    with tempfile.TemporaryDirectory(prefix="thinwire-bench-") as folder:
        path = Path(folder) / "job.json"
        path.write_text(json.dumps(job))
        argv = [sys.executable, "-m", module, str(path)]
        with Crew(lambda rank: network.popen(rank, argv, hosts), hosts) as crew:
            yield from crew.rows()
