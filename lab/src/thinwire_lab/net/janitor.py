"""The janitor of a lab: a small process that removes the lab, however its owner ends."""

from __future__ import annotations

import os
import re
import secrets
import subprocess
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.net.iproute import check_machine, search_path

NAMESPACES = Path("/var/run/netns")
HOST_FILES = Path("/etc/netns")  # `ip netns exec NAME` shows HOST_FILES/NAME/hosts as /etc/hosts
PATIENCE_S = 30.0

# Waits for a line or for the end of its input (the owner is gone); then, for the namespaces it was given,
# 1. kills every process in them; 2. deletes the links (`ip netns del` alone returns before they are gone);
# 3. deletes the namespaces and their files.
SCRIPT = f"""
read -r _
for name; do
  tries=0
  while pids=$(ip netns pids "$name") && [ -n "$pids" ] && [ "$tries" -lt 100 ]; do
    kill -9 $pids; sleep 0.02; tries=$((tries + 1))
  done
done
for name; do
  ip -n "$name" link del eth0
  ip netns del "$name"
  rm -f "{HOST_FILES}/$name/hosts"; rmdir "{HOST_FILES}/$name"
done
exit 0
"""


class Janitor:
    """Removes these namespaces when told to by `finish`, or when this process dies."""

    def __init__(self, namespaces: list[str]) -> None:
        self._namespaces = namespaces
        self._process = _start(namespaces)

    def finish(self) -> None:
        """Clean up now, and wait until it is done, also if Ctrl-C comes meanwhile."""
        try:
            self._process.communicate(b"\n", timeout=PATIENCE_S)
        except (KeyboardInterrupt, SystemExit):
            self._process.wait(PATIENCE_S)
            raise
        except subprocess.TimeoutExpired:
            raise LabError(
                f"the lab was not removed within {PATIENCE_S:.0f} s: see `ip netns list`, "
                "and run `thinwire netlab --clean` when this process has ended"
            ) from None
        if self._process.returncode != 0:  # somebody killed it
            _clean(self._namespaces)


def lab_prefix() -> str:
    """How the namespaces of a new lab are called; names the owner, so that a stale lab is recognised."""
    return f"thinwire-{os.getpid()}-{_start_time(os.getpid())}-{secrets.token_hex(2)}"


def sweep() -> list[str]:
    """Remove the labs whose owner is dead, and give the names of their namespaces."""
    check_machine()
    folders = [folder for folder in (NAMESPACES, HOST_FILES) if folder.is_dir()]
    stale = sorted({path.name for folder in folders for path in folder.iterdir() if _is_stale(path.name)})
    _clean(stale)
    return stale


def _is_stale(name: str) -> bool:
    match = re.fullmatch(r"thinwire-(\d+)-(\d+)-[0-9a-f]{4}-\w+", name)
    # Compared with the start time too, since process numbers are used again.
    return match is not None and _start_time(int(match[1])) != int(match[2])


def _start_time(pid: int) -> int | None:
    """When a process started, in clock ticks since boot; None if there is no such process."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    return int(stat.rpartition(")")[2].split()[19])


def _start(namespaces: list[str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["sh", "-c", SCRIPT, "thinwire-janitor", *namespaces],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        cwd="/",
        env={**os.environ, "PATH": search_path()},
        start_new_session=True,  # Ctrl-C and a closed terminal do not reach it
    )


def _clean(namespaces: list[str]) -> None:
    if namespaces:
        _start(namespaces).communicate(b"\n", timeout=PATIENCE_S)
