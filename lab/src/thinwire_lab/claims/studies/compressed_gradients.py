"""What methods and number formats do to gradients recorded early, midway and late in training."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from thinwire_lab.claims.rounded import rounded
from thinwire_lab.claims.run import Result, Run
from thinwire_lab.claims.study import Study, Tell
from thinwire_lab.study.errors import TARGETS, find_errors
from thinwire_lab.study.formats import measure_formats
from thinwire_lab.study.methods import METHODS
from thinwire_lab.study.recording import record
from thinwire_lab.study.snapshot import Snapshot
from thinwire_lab.study.subject import read_subjects

KIND = "compressed gradients"
COMPARED = ("fft", "fft whole", "topk", "topk fp32", "terngrad", "qsgd", "qsgd l2")


@dataclass(frozen=True)
class CompressedGradients(Study):
    """Subjects as `thinwire study` names them, "mnist" or "cifar10:cifarnet", each trained for some steps."""

    subjects: Sequence[str]
    steps: int
    needs_data = True

    def runs(self, seed: int) -> Sequence[Run]:
        return [
            Run(KIND, {"task": subject, "steps": self.steps, "methods": list(COMPARED)}, seed)
            for subject in self.subjects
        ]

    def perform(self, run: Run, data: Path | None, tell: Tell) -> Result:
        torch.set_num_threads(1)  # sums of floats depend on it
        [subject] = read_subjects(run.settings["task"], run.settings["steps"], run.seed)
        found = [_looked_at(snapshot, run, tell) for snapshot in record(subject, data, tell)]
        return {"moments": found}


def _looked_at(snapshot: Snapshot, run: Run, tell: Tell) -> dict[str, Any]:
    tell(f"compressing, {snapshot.moment}", 0, 1)
    methods = [METHODS[name] for name in run.settings["methods"]]
    finding = find_errors(snapshot, methods, TARGETS, run.seed)
    errors = [
        {"method": e.method, "target": e.target, "meets": e.meets, "error": rounded(e.error)}
        for e in finding.errors
    ]
    formats = [
        {"format": f.format, "bits": f.bits, "error": rounded(f.error), "underflow": rounded(f.underflow)}
        for f in measure_formats(snapshot)
    ]
    return {
        "moment": snapshot.moment,
        "loss": rounded(snapshot.loss),
        "lag1": rounded(finding.correlation.lag1),
        "errors": errors,
        "formats": formats,
    }
