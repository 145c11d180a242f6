"""What this process has used so far."""

from __future__ import annotations

import resource


def usage() -> dict[str, float]:
    """CPU seconds of all threads, and the most memory it ever held."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "cpu_seconds": round(used.ru_utime + used.ru_stime, 3),
        "peak_memory_mb": round(used.ru_maxrss * 1024 / 1e6, 1),
    }
