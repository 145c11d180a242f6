"""The server's process of a bench: serves a model file until its standard input ends.

    python -m thinwire_lab.private.host '{"model": "m.twq", "variant": "ours", "listen": "127.0.0.1:0"}'

Prints JSON lines: its address, what happens, and at the end its CPU seconds and peak memory.
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from thinwire_lab.private.usage import usage
from thinwire_private.link.tls import parse_address, told
from thinwire_private.net.twq import read_twq
from thinwire_private.server import Server
from thinwire_private.variant import variant


@dataclass(frozen=True)
class Host:
    """What the process is told to do."""

    model: str
    variant: str
    listen: str = "127.0.0.1:0"
    certificate: str | None = None
    key: str | None = None
    timeout_s: float = 600.0

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    def run(self) -> None:
        server = Server(
            read_twq(Path(self.model)).graph,
            parse_address(self.listen),
            variant=variant(self.variant),
            certificate=self.certificate,
            key=self.key,
            timeout_s=self.timeout_s,
            tell=lambda text: _say({"row": "event", "text": text}),
        )
        with server:
            _say({"row": "listening", "address": told(server.address)})
            sys.stdin.read()
        _say({"row": "usage", **usage()})


def _say(row: dict[str, object]) -> None:
    print(json.dumps(row), flush=True)


def main(settings: str) -> None:
    """Run what the settings, JSON, say."""
    Host(**json.loads(settings)).run()


if __name__ == "__main__":
    main(sys.argv[1])
