"""A codec: stages, then a coder. How payloads merge follows from the links, it is never declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.coders.base import Coder, Merge, Place
from thinwire.options import show_options
from thinwire.spec import Layout, Spec
from thinwire.stages.base import NOTHING, BoundStage, LinearStage, Notes, RangedStage, SelectingStage, Stage


@dataclass(frozen=True)
class Codec:
    """A chain of links under the name it was asked for: linear stages, at most one selecting stage, a coder.

    The algebra: links from the first one whose decoding needs per-rank data (indices, own scales) are decoded
    payload by payload; links before it are linear and are decoded once, on the sum. So

    - nothing per-rank and a coder that adds as floats: SUM,
    - nothing per-rank and a shared-scale integer coder: INT,
    - anything else: GATHER.
    """

    name: str
    stages: tuple[LinearStage, ...]
    coder: Coder
    selecting: SelectingStage | None = None

    def __post_init__(self) -> None:
        if self.selecting is not None:
            self.selecting.around(self.coder)  # refuses a coder that it cannot feed

    @property
    def links(self) -> tuple[Stage | Coder, ...]:
        selecting = () if self.selecting is None else (self.selecting,)
        return (*self.stages, *selecting, self.coder)

    @property
    def packing(self) -> Coder:
        """What packs numbers behind the linear stages: the coder, or the selecting stage around it."""
        return self.coder if self.selecting is None else self.selecting.around(self.coder)

    def packing_at(self, step: int) -> Coder:
        """`packing` with the sizes of one step's phase; how payloads merge is the same in all phases."""
        if self.selecting is None:
            return self.coder
        return self.selecting.at(self.selecting.phase(step)).around(self.coder)

    @property
    def merge(self) -> Merge:
        return self.packing.merge

    @property
    def own_dtype(self) -> bool:
        """True if a tensor travels as it is, in its own dtype."""
        return self.coder.own_dtype and len(self.links) == 1

    @property
    def gentle(self) -> bool:
        """True if no tensor needs to be kept dense beside it."""
        return self.coder.gentle and len(self.links) == 1

    @property
    def memory(self) -> str:
        """The memory it asks for: that of the first link that drops something for good."""
        return next((link.memory for link in self.links if link.memory != "none"), "none")

    @property
    def learns(self) -> bool:
        """True if a stage learns from the means."""
        return any(stage.learns for stage in self.stages)

    @property
    def theta(self) -> float | None:
        """The part of the numbers that it drops, None if it drops nothing or that differs by tensor."""
        return None if self.selecting is None else self.selecting.theta

    @property
    def has_strength(self) -> bool:
        """True if a control can make it gentler."""
        links = self.links if self.selecting is None else (self.selecting,)
        return any(link.eased(1.0) is not None for link in links)

    def eased(self, share: float) -> Codec:
        """This codec with a share of its strength, under the same name; itself if it has none.

        A selecting stage takes it all: what it keeps is still coded as it was asked for. Without one, every
        link that has a strength is eased.
        """
        if share >= 1 or not self.has_strength:
            return self
        if self.selecting is not None:
            return replace(self, selecting=self.selecting.eased(share))
        stages = tuple(stage.eased(share) or stage for stage in self.stages)
        return replace(self, stages=stages, coder=self.coder.eased(share) or self.coder)

    @property
    def canonical(self) -> str:
        """Every link with every option that is not its default: equal texts mean equal bytes on the wire."""
        return " >> ".join(f"{type(link).__name__}({show_options(link)})" for link in self.links)

    def phase(self, step: int, note: Mapping[str, Tensor] = NOTHING) -> str:
        """The phases of its stages in a step, for a tensor of which `note` is remembered."""
        stages = (link for link in (*self.stages, self.selecting) if link is not None)
        return " ".join(stage.phase(step, note) for stage in stages)

    def refuses(self, spec: Spec) -> str | None:
        """Why a tensor must stay dense under this codec, or None."""
        stages = [link for link in (*self.stages, self.selecting) if link is not None]
        return next((reason for stage in stages if (reason := stage.refuses(spec))), None)

    def bind(self, layout: Layout, place: Place, step: int = 0, notes: Notes | None = None) -> BoundCodec:
        return BoundCodec(self, layout, place, step, {} if notes is None else notes)

    def __str__(self) -> str:
        return self.name


class BoundCodec:
    """A codec bound to the tensors of a lane, in the phase of one step."""

    def __init__(self, codec: Codec, layout: Layout, place: Place, step: int, notes: Notes) -> None:
        self.codec, self.layout, self.place = codec, layout, place
        self.step, self.notes = step, notes  # what it was bound with
        self.phase = codec.phase(step)
        self.stages: list[BoundStage] = []
        inner = layout
        for stage in codec.stages:
            bound = stage.bind(inner, place, stage.phase(step), notes)
            self.stages.append(bound)
            inner = bound.out
        self.packer = codec.packing_at(step).bind(inner, place)
        self.inner = inner  # how the numbers lie that the coder sees

    @property
    def ranged(self) -> RangedStage | None:
        """The only stage, if it can be run part by part and the coder need not see all numbers first."""
        fed_by_parts = self.packer.places() != () and not self.packer.agree_words
        if len(self.stages) == 1 and fed_by_parts and isinstance(self.stages[0], RangedStage):
            return self.stages[0]
        return None

    @property
    def summed_numel(self) -> int:
        """Numbers that its stages add up over all ranks before encoding."""
        return sum(stage.offer_numel for stage in self.stages)

    @property
    def remembers_coordinates(self) -> bool:
        """True if what is held back is kept as the coder sees it, which spares going back through the stages.

        By linearity it is the same, as long as the stages do not change from step to step.
        """
        return all(stage.fixed for stage in self.codec.stages)

    def offer(self, y: Tensor) -> Tensor:
        """The words that must be agreed on (maximised) before encoding."""
        words = torch.zeros(self.packer.agree_words, dtype=torch.int32, device=y.device)
        self.packer.offer(y, words)
        return words

    def numbers(self, x: Tensor) -> Tensor:
        """Where decoded numbers go before `finish`: x itself if there are no stages."""
        return x.new_empty(self.inner.numel) if self.stages else x

    def finish(self, y: Tensor, x: Tensor) -> Tensor:
        """Decoded numbers, as the coder sees them, to the tensors of x; returns what the first stage sees."""
        for before, stage in reversed(list(zip(self.stages, self.stages[1:], strict=False))):
            outer = y.new_empty(before.out.numel)
            stage.inverse(y, outer)
            y = outer
        if self.stages:
            self.stages[0].inverse(y, x)
        return y

    def set_unit(self, unit: float) -> None:
        """Tells the stages the loss scale of the gradients at hand."""
        for stage in self.stages:
            stage.unit = unit

    def learn(self, y: Tensor, x: Tensor) -> None:
        """Shows the mean to the first stage: bases and samples come from the REDUCED result."""
        if self.stages:
            self.stages[0].learn(y, x)
