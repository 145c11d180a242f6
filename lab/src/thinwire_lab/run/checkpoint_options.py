"""Where a run is saved, where it goes on from and where it stops early, as the user asks for it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from thinwire.errors import LabError
from thinwire_lab.run.recipe import Recipe


@dataclass(frozen=True)
class CheckpointOptions:
    """Where a run is saved, where it goes on from and where it stops early."""

    checkpoint: Path | None = None
    checkpoint_every: int | None = None
    resume: Path | None = None
    stop_at: int | None = None

    def check(self, recipe: Recipe) -> None:
        """Refuse what cannot work before a process is started."""
        if self.checkpoint_every is not None and self.checkpoint_every < 1:
            raise LabError(f"--checkpoint-every must be at least 1, not {self.checkpoint_every}")
        if self.stop_at is not None and self.stop_at < 1:
            raise LabError(f"--stop-at must be at least 1, not {self.stop_at}")
        if self.checkpoint is not None and not self.checkpoint.absolute().parent.is_dir():
            raise LabError(
                f"folder {self.checkpoint.absolute().parent} for --checkpoint does not exist: make it first"
            )
        if (self.checkpoint or self.resume) and recipe.codec.startswith("ddp-powersgd"):
            raise LabError("the state of ddp-powersgd cannot be saved: leave out --checkpoint and --resume")
        if self.resume is not None:
            self._check_resume(self.resume, recipe)

    def _check_resume(self, path: Path, recipe: Recipe) -> None:
        from thinwire_lab.run.checkpoint import check_same_run, read_checkpoint

        checkpoint = read_checkpoint(path)
        check_same_run(path, checkpoint, recipe)
        if self.stop_at is not None and self.stop_at <= checkpoint.step:
            raise LabError(
                f"checkpoint {path} is at step {checkpoint.step} already: --stop-at must be above it"
            )
