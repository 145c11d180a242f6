r"""The client's process of a bench: private predictions, compared with the plaintext ones.

    python -m thinwire_lab.private.visitor \
      '{"server": "127.0.0.1:7000", "inputs": "x.npy", "expected": "y.npy"}'

Prints one JSON line per query while it runs, then one with the ledger.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from thinwire_lab.private.usage import usage
from thinwire_private.client import Client


@dataclass(frozen=True)
class Visitor:
    """What the process is told to do: `inputs` (N, C, H, W), `batch` pictures a query."""

    server: str
    inputs: str
    expected: str
    batch: int = 1
    ahead: bool = False  # prepare all queries before the first one is asked
    ca: str | None = None
    timeout_s: float = 600.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def run(self) -> None:
        inputs, expected = np.load(self.inputs), np.load(self.expected)
        start = time.perf_counter()
        mismatches, queries = 0, []
        with Client(self.server, ca=self.ca, timeout_s=self.timeout_s) as client:
            ready_s = time.perf_counter() - start
            if self.ahead:
                client.prepare(-(-len(inputs) // self.batch), self.batch)
            for place in range(0, len(inputs), self.batch):
                asked = time.perf_counter()
                answer = client.predict(inputs[place : place + self.batch])
                wrong = int((answer != expected[place : place + self.batch]).any(axis=1).sum())
                mismatches += wrong
                queries.append({"seconds": time.perf_counter() - asked, "wrong": wrong})
                _say({"row": "query", "done": place + len(answer), "of": len(inputs), **queries[-1]})
            result = {
                "row": "result",
                "images": len(inputs),
                "mismatches": mismatches,
                "seconds": time.perf_counter() - start,
                "ready_seconds": ready_s,
                "queries": queries,
                "handshake_bytes": client.handshake_bytes,
                "tcp_bytes": client.tcp_bytes,
                "entries": [asdict(entry) for entry in client.entries],
            }
        _say({**result, **usage()})


def _say(row: dict[str, Any]) -> None:
    print(json.dumps(row), flush=True)


def main(settings: str) -> None:
    """Run what the settings, JSON, say."""
    Visitor(**json.loads(settings)).run()


if __name__ == "__main__":
    main(sys.argv[1])
