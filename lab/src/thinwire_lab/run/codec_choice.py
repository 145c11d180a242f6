"""What a user asks for: a codec and, behind "@", how else it is run: "topk:0.01 @ control=guard"."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import thinwire as tw
from thinwire.auto.qualities import DENSE, QUALITIES, candidates
from thinwire.errors import LabError
from thinwire.texts.behind_at import read_hierarchy, split_options
from thinwire.texts.names import AUTO, CONTROLS, MEMORIES, ROUTES, check_codec_names, check_name, first_word

DDP, DDP_FP16, DDP_POWERSGD = "ddp", "ddp-fp16", "ddp-powersgd"  # PyTorch's own exchange


@dataclass(frozen=True)
class CodecChoice:
    """A codec text, how else `compress` is called, and the size of DDP's buckets in MB (None: DDP's own)."""

    codec: str
    memory: str | None = None
    route: str | None = None
    control: str | None = None
    bucket: str | None = None
    quality: str | None = None
    hierarchy: str | None = None

    def __post_init__(self) -> None:
        if self.bucket is not None and not self.bucket.replace(".", "", 1).isdigit():
            raise LabError(f"bucket={self.bucket} must be a size in MB, as in bucket=5")
        if not (self.hierarchy in (None, "auto", "off") or str(self.hierarchy).isdigit()):
            raise LabError(f"hierarchy={self.hierarchy} must be auto, off, or how many workers a node has")
        if self.is_auto and (self.memory or self.route or self.control):
            raise LabError(
                "auto chooses memory, route and control with the codec: quality= and hierarchy= fit"
            )
        if self.quality is not None and not self.is_auto:
            raise LabError(f"quality={self.quality} says what auto may take, and {self.codec} is no auto")

    @property
    def is_pytorch(self) -> bool:
        """Whether PyTorch's own exchange is meant and not a thinwire codec."""
        return first_word(self.codec) in (DDP, DDP_FP16, DDP_POWERSGD)

    @property
    def is_auto(self) -> bool:
        """Whether what is quickest is meant."""
        return self.codec == AUTO

    def check_names(self) -> None:
        """Refuses a misspelt name without waiting for torch; options are checked where the codec is made."""
        if not self.is_pytorch and not self.is_auto:
            check_codec_names(self.codec)
        for what, known in (("memory", MEMORIES), ("route", ROUTES), ("control", CONTROLS)):
            text = getattr(self, what)
            if text is not None:
                check_name(what, text, known)

    @property
    def bucket_mb(self) -> float | None:
        return None if self.bucket is None else float(self.bucket)

    def options(self) -> dict[str, Any]:
        """The options as `compress` takes them."""
        options: dict[str, Any] = {"memory": self.memory, "route": self.route, "control": self.control}
        if self.quality is not None:
            options["quality"] = self.quality
        if self.hierarchy is not None:
            options["hierarchy"] = read_hierarchy(self.hierarchy)
        return options

    def policy(self, total_steps: int | None = None) -> tw.Policy:
        """Which tensor gets what, in a run of so many steps."""
        return tw.Policy.of(self.codec, total_steps=total_steps)

    def plan(self, model: tw.Model, workers: int, total_steps: int | None = None) -> tw.Plan:
        """What would travel for a model in a run of so many steps; under auto, in the first ones."""
        if self.is_auto:
            candidates(self.quality or QUALITIES[0])
            return tw.Plan.of(tw.Policy.of(DENSE), model, workers)
        return tw.Plan.of(self.policy(total_steps), model, workers, self.memory, self.route, self.control)


def read_codec_choice(text: str) -> CodecChoice:
    """Reads a codec text with options behind "@", in words of the form option=value.

    >>> read_codec_choice("topk:0.01 @ control=guard:patience=2 memory=none").options()
    {'memory': 'none', 'route': None, 'control': 'guard:patience=2'}
    """
    codec, given = split_options(text)
    return CodecChoice(codec, **given)
