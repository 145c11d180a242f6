"""Which host this is: processes with the same answer reach each other without a network."""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
from pathlib import Path

HOST_BYTES = 16


def host_id() -> bytes:
    """HOST_BYTES bytes: of the host's name, its boot, and the network namespace (a container has its own)."""
    facts = [socket.gethostname()]
    with contextlib.suppress(OSError):  # where there is no /proc the name must do
        facts.append(Path("/proc/sys/kernel/random/boot_id").read_text())
        facts.append(str(os.stat("/proc/self/ns/net").st_ino))
    return hashlib.blake2b("\n".join(facts).encode(), digest_size=HOST_BYTES).digest()
