"""Probing: a calibration of the group that torchrun made, or of two workers of this machine.

Started as `python -m thinwire_lab.net.probing JOB_FILE` in every worker of the second kind.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from thinwire.groups.torch import TorchGroup
from thinwire.perf.calibration import Calibration
from thinwire.perf.probe import probe
from thinwire.perf.store import cache_folder, group_name, save
from thinwire_lab.net.network import LOOPBACK, open_network
from thinwire_lab.net.workers import join, leave, run_workers

CODECS = ("fp16", "terngrad", "qsgd:4", "topk:0.01")
_LAUNCHED = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")


def under_launcher() -> bool:
    """Whether torchrun, or something like it, has started this process as one of a group."""
    return all(name in os.environ for name in _LAUNCHED)


def probe_group(codecs: Sequence[str]) -> Calibration | None:
    """Collective, under torchrun: measures its group and caches that; None on all ranks but the first."""
    cuda = torch.cuda.is_available() and dist.is_nccl_available()
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0"))) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    made = _probed(codecs, device)
    first = dist.get_rank() == 0
    dist.barrier()
    dist.destroy_process_group()
    return made if first else None


def probe_two(codecs: Sequence[str]) -> Calibration:
    """Starts two workers on this machine and measures what is between them."""
    with open_network(None, 2, LOOPBACK) as network:
        rows = run_workers("thinwire_lab.net.probing", {"codecs": list(codecs)}, network, 2)
        (result,) = [row for row in rows if row["row"] == "result"]
    return Calibration.from_json(result["calibration"])


def _probed(codecs: Sequence[str], device: torch.device) -> Calibration:
    group = TorchGroup()
    group.connect()
    made = probe(group, device, codecs)
    path = cache_folder() / f"{group_name(group, device)}.json"
    if group.rank == 0:
        save(made, path)
    group.close()
    return made


def main(path: Path) -> None:
    """Every worker."""
    join(path)
    made = _probed(json.loads(path.read_text())["codecs"], torch.device("cpu"))
    if dist.get_rank() == 0:
        print(json.dumps({"row": "result", "calibration": made.to_json()}), flush=True)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
