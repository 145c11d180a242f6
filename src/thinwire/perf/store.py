"""A store of calibrations: one file for each kind of machine and group, in the user's cache folder."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

import torch

from thinwire.codecs.codec import parse
from thinwire.errors import ThinwireError
from thinwire.groups.base import Group
from thinwire.perf import codec_probe, link_probe
from thinwire.perf.calibration import MAX_AGE_S, Calibration, machine_kind
from thinwire.perf.codec_probe import NUMEL, probe_codecs
from thinwire.perf.link_probe import probe_link
from thinwire.perf.probing import CPU, first_bytes, gathered_bytes, refuse_one

__all__ = ["probe", "probe_codecs", "probe_link"]


def probe(
    group: Group,
    device: torch.device,
    codecs: Sequence[str],
    numel: int = codec_probe.NUMEL,
    seconds: float = link_probe.SECONDS + codec_probe.SECONDS,
    company: bool = True,
) -> Calibration:
    """Collective, called by one thread of every rank of a connected group: the same numbers on all ranks.

    >>> from thinwire.groups.thread import run_ranks
    >>> cpu = torch.device("cpu")
    >>> made = run_ranks(2, lambda group: probe(group, cpu, ["terngrad"], numel=90_000, seconds=0.2))
    >>> made[0] == made[1], sorted(made[0].speeds)
    (True, ['dense', 'dense sharded', 'terngrad'])
    """
    linked = probe_link(group, device, seconds / 2, company)
    speeds, contends = probe_codecs(group, device, codecs, numel, seconds / 2)
    return linked.with_speeds(speeds, contends)


QUICK_NUMEL = NUMEL // 4


def cache_folder() -> Path:
    """Where calibrations are kept: XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "thinwire"


def calibrated(
    group: Group,
    device: torch.device,
    codecs: Sequence[str],
    *,
    folder: Path | None = None,
    max_age_s: float = MAX_AGE_S,
    seconds: float = 2.0,
    quick: bool = False,
) -> Calibration:
    """Collective: what the first rank has cached of this group, if it is young and complete; else a probe.

    A cache that cannot be read or written is no error: it is measured anew. Two networks of the same hosts
    are one group here: where a rate may have changed give another `folder` or `max_age_s=0`.

    `quick`, for a run that wants to go on: links are measured anew in any case but not beside computing, and
    codecs, if they are not in the cache, on small buckets.
    """
    refuse_one(group)
    path = (folder or cache_folder()) / f"{group_name(group, device)}.json"
    found = first_bytes(group, _young(path, codecs, max_age_s) if group.rank == 0 else b"", device)
    if found:
        known = Calibration.from_json(json.loads(found))
        return known.with_link(probe_link(group, device, seconds / 2, company=False)) if quick else known
    made = probe(group, device, codecs, QUICK_NUMEL if quick else NUMEL, seconds, company=not quick)
    if group.rank == 0:
        save(made, path)
    return made


def group_name(group: Group, device: torch.device = CPU) -> str:
    """Collective: size, hosts and their kind as a name, equal on all ranks, in which no host can be read."""
    mine = hashlib.blake2b(f"{platform.node()} {machine_kind()}".encode(), digest_size=32).digest()
    hosts = b"".join(gathered_bytes(group, mine, device))
    digest = hashlib.blake2b(hosts, digest_size=8, person=device.type.encode()).hexdigest()
    return f"{group.size}-workers-{digest}"


def load(path: Path) -> Calibration | None:
    """The calibration in a file; None if there is none, or none that can be read."""
    try:
        return Calibration.from_json(json.loads(path.read_text()))
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ThinwireError):
        return None


def save(calibration: Calibration, path: Path) -> bool:
    """Whether it could be written; a reader sees the old file or the new one, never a half."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, suffix=".new")
        with os.fdopen(handle, "w") as file:
            json.dump(calibration.to_json(), file, indent=1)
        Path(name).replace(path)
    except OSError:
        with contextlib.suppress(OSError, UnboundLocalError):
            Path(name).unlink()
        return False
    return True


def _young(path: Path, codecs: Sequence[str], max_age_s: float) -> bytes:
    found = load(path)
    if found is None or found.expired(max_age_s):
        return b""
    has_all = all(any(_is_of(key, str(parse(codec))) for key in found.speeds) for codec in codecs)
    return json.dumps(found.to_json()).encode() if has_all else b""


def _is_of(key: str, codec: str) -> bool:
    """Whether a key is that of a codec: what follows it is a phase or a route, not another link.

    >>> _is_of("gradiveq:8 sample", "gradiveq:8"), _is_of("topk:0.01 >> fp16", "topk:0.01")
    (True, False)
    """
    rest = key.removeprefix(codec)
    return key.startswith(codec) and (not rest or (rest.startswith(" ") and ">>" not in rest))
