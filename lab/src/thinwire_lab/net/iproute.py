"""The door to `ip` and `tc`: finds them, runs them, and turns what they refuse into one clear sentence."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from thinwire.errors import LabError

WAY_OUT = "or slow thinwire's own exchange instead: tw.compress(..., link=tw.Link(rate=...))"


def check_machine() -> None:
    """Raise LabError unless this is Linux, `ip` and `tc` are there and we are root."""
    if sys.platform != "linux":
        raise LabError(
            f"netlab needs network namespaces of Linux, this is {sys.platform}: use Linux, {WAY_OUT}"
        )
    for tool in ("ip", "tc"):
        find_tool(tool)
    if os.geteuid() != 0:
        raise LabError(f"netlab needs root to make hosts and shape their links: run it with sudo, {WAY_OUT}")


def search_path() -> str:
    """PATH, and the folders of system tools that an ordinary user's PATH may lack."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find_tool(tool: str) -> str:
    """The full path of `ip` or `tc`."""
    path = shutil.which(tool, path=search_path())
    if path is None:
        raise LabError(
            f"netlab needs the program `{tool}`: install iproute2 (apt install iproute2), {WAY_OUT}"
        )
    return path


def run_tool(tool: str, *arguments: str) -> str:
    """Run `ip` or `tc` and give what it printed."""
    command = [find_tool(tool), *arguments]
    # In a session of its own: Ctrl-C reaches us, not a half-done change of the network.
    done = subprocess.run(command, capture_output=True, text=True, start_new_session=True)
    if done.returncode != 0:
        said = " ".join(done.stderr.split()) or f"exit code {done.returncode}"
        raise LabError(
            f"`{tool} {' '.join(arguments)}` was refused ({said}): netlab needs root with CAP_NET_ADMIN and "
            f"CAP_SYS_ADMIN (a container: --privileged), {WAY_OUT}"
        )
    return done.stdout
