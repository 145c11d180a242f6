"""A worker of a cell of `bench auto`: trains until `auto` has decided, then times it beside what it may take.

Started as `python -m thinwire_lab.bench.auto_worker JOB_FILE`.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path

import torch.distributed as dist

from thinwire.auto.choice import choices
from thinwire_lab.bench.auto_cells import AutoJob
from thinwire_lab.bench.cell import AGAIN, AUTO, BASE
from thinwire_lab.bench.cell_worker import Training, Variant, measured, meet, take_turns
from thinwire_lab.net.rendezvous import leave

WARM_UP_TURNS = 2
SETTLED = 14  # steps after a decision: auto has found the messages by which it watches the link
QUICKEST = 3  # codecs that are timed to the end; slower ones are the best of nothing


def main(path: Path) -> None:
    """Every worker; rank 0 prints the cell's record."""
    warnings.simplefilter("ignore")  # a codec that leaves a small model dense is one that auto may try, too
    job = AutoJob(**json.loads(path.read_text()))
    meet(path)
    training = Training(AUTO, job.model, job.batch, job.quality)
    begin = time.perf_counter()
    steps = training.decide()
    decide_s = time.perf_counter() - begin
    for _ in range(SETTLED):
        training.step()
    pilot = training.compressor.course.pilot
    decision = pilot.decision.to_dict() if pilot.decision is not None else None
    variants = [Variant(AUTO, training)]
    for hook in (BASE, AGAIN, *choices(job.quality, nodes=False)):
        variants.append(Variant(hook, Training(hook, job.model, job.batch)))
    for _ in range(WARM_UP_TURNS):
        for variant in variants:
            variant.turn()
    variants = variants[:3] + sorted(variants[3:], key=lambda one: one.last_s)[:QUICKEST]
    repeats = take_turns(variants, job.seconds, job.min_repeats, job.max_repeats)
    if dist.get_rank() == 0:
        told = {
            "auto_steps": steps,
            "decide_s": round(decide_s, 2),
            "took": pilot.codec,
            "decision": decision,
        }
        record = {**measured(variants), **told, "decided_again": len(pilot.decisions) - 1, "repeats": repeats}
        print(json.dumps({"row": "result", **record}), flush=True)
    leave()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
