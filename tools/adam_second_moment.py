"""What error feedback does to Adam's steps: sqrt(v) and |m| / sqrt(v) beside DDP's, early in the text study.

.venv/bin/python tools/adam_second_moment.py DIR     # the folder of data sets; about a minute
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import torch

from thinwire_lab.data import load_task
from thinwire_lab.run.recipe import shakespeare_study
from thinwire_lab.run.virtual_trainer import VirtualTrainer

CODECS = ("dense", "terngrad:1", "terngrad:1 @ feedback=none")
LOOKED_AT = (20, 40, 80)  # steps


def main() -> None:
    if len(sys.argv) != 2:
        sys.exit("name the folder of data sets: adam_second_moment.py DIR")
    torch.set_num_threads(1)  # as every worker has
    task = load_task("shakespeare", Path(sys.argv[1]))
    for codec in CODECS:
        trainer = VirtualTrainer(replace(shakespeare_study(), codec=codec), task)
        for step, loss in enumerate(trainer.steps(0, max(LOOKED_AT)), 1):
            if step in LOOKED_AT:
                root, length = moments(trainer)
                print(
                    f"{codec:26} step {step:3}: loss {loss:.3f}, sqrt(v) {root:.2e}, |m|/sqrt(v) {length:.2f}"
                )
        trainer.close()


def moments(trainer: VirtualTrainer) -> tuple[float, float]:
    """The means of sqrt(v) and of |m| / sqrt(v) over all weights that are matrices."""
    states = [trainer.optimizer.state[p] for p in trainer.net.parameters() if p.dim() > 1]
    root = torch.cat([state["exp_avg_sq"].sqrt().flatten() for state in states])
    momentum = torch.cat([state["exp_avg"].abs().flatten() for state in states])
    return root.mean().item(), (momentum / (root + 1e-8)).mean().item()


if __name__ == "__main__":
    main()
