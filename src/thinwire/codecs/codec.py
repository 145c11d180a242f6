"""A codec: stages, then a coder. How payloads merge follows from the links, it is never declared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from torch import Tensor

from thinwire.codecs.bound import BoundCodec
from thinwire.codecs.coders.base import Coder, Context, Merge
from thinwire.codecs.coders.floats import Dense
from thinwire.codecs.link import ChainLink
from thinwire.codecs.stages.base import NOTHING, Learned, LinearStage, SelectingStage, Stage
from thinwire.codecs.stages.identity import Identity
from thinwire.errors import CodecError
from thinwire.tensors.layout import Layout
from thinwire.tensors.spec import Spec

START, COMPRESSED = "start", "compressed"  # the phases of a codec with a dense start


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
            self.selecting.check(self.coder)

    @classmethod
    def of(cls, links: Iterable[ChainLink], name: str) -> Codec:
        """The codec of a chain; a stage at its end is followed by the coder that it asks for."""
        draft = Draft(name)
        for link in links:
            draft.add(link)
        return draft.codec()

    @property
    def links(self) -> tuple[ChainLink, ...]:
        """Its stages in order, then its coder."""
        return (*self.stages, *self._selecting, self.coder)

    @property
    def _selecting(self) -> tuple[SelectingStage, ...]:
        return () if self.selecting is None else (self.selecting,)

    @property
    def _all_stages(self) -> tuple[Stage, ...]:
        return (*self.stages, *self._selecting)

    @property
    def merge(self) -> Merge:
        """How payloads of several ranks become one: by the coder, unless a stage selects."""
        return self.coder.merge if self.selecting is None else Merge.GATHER

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
        links: tuple[Stage | Coder, ...] = self._selecting or (*self.stages, self.coder)
        return any(link.at_strength(1.0) is not None for link in links)

    def at_strength(self, strength: float) -> Codec:
        """This codec with a part of its strength, under the same name; itself if it has none.

        A selecting stage takes it all: what it keeps is still coded as it was asked for. Without one, every
        link that has a strength is made gentler.
        """
        if strength >= 1 or not self.has_strength:
            return self
        if self.selecting is not None:
            return replace(self, selecting=self.selecting.at_strength(strength))
        stages = tuple(stage.at_strength(strength) or stage for stage in self.stages)
        return replace(self, stages=stages, coder=self.coder.at_strength(strength) or self.coder)

    @property
    def canonical(self) -> str:
        """Every link with every option that is not its default: equal texts mean equal bytes on the wire."""
        return " >> ".join(link.name for link in self.links)

    @cached_property
    def dense_steps(self) -> int:
        """Steps before the first compressed one, in which everything is sent."""
        return max(link.dense_steps for link in self.links)

    def starts(self, step: int) -> bool:
        """Whether a step belongs to its dense start: what selects and codes is left out, floats add up."""
        return step < self.dense_steps

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        """The phases of its stages in a step, for a tensor of which `known` was learnt."""
        if self.starts(step):
            return _joined(START, *(stage.phase(step, known) for stage in self.stages))
        inner = _joined(*(stage.phase(step, known) for stage in self._all_stages))
        return inner or (COMPRESSED if self.dense_steps else "")

    def refuses(self, spec: Spec) -> str | None:
        """Why a tensor must stay dense under this codec, or None."""
        return next((reason for stage in self._all_stages if (reason := stage.refuses(spec))), None)

    def bind(
        self, layout: Layout, context: Context, step: int = 0, learned: Learned | None = None
    ) -> BoundCodec:
        """This codec bound to the tensors of a lane, in the phase of one step."""
        if self.starts(step):
            return self._begun().bind(layout, context, step, learned)
        learned = {} if learned is None else learned
        stages, inner = [], layout
        for stage in self.stages:
            stages.append(stage.bind(inner, context, stage.phase(step), learned))
            inner = stages[-1].out
        if self.selecting is None:
            packer = self.coder.bind(inner, context)
        else:
            packer = self.selecting.bind(self.coder, inner, context, self.selecting.phase(step))
        fixed = all(stage.fixed for stage in self.stages)
        return BoundCodec(layout, context, stages, inner, packer, self.phase(step), fixed)

    def _begun(self) -> Codec:
        """What its dense start sends: numbers behind its linear stages, where memories may live, as floats.

        Without stages there is one that changes nothing: memories want float32 whatever the gradients are.
        """
        return Codec(self.name, self.stages or (Identity(),), Dense())

    def __str__(self) -> str:
        return self.name


def _joined(*phases: str) -> str:
    return " ".join(filter(None, phases))


class Draft:
    """A codec in the making: links come one by one, and what cannot follow is refused."""

    def __init__(self, text: str) -> None:
        self.text, self._said = text, ""
        self._last: ChainLink | None = None
        self._linear: list[LinearStage] = []
        self._selecting: SelectingStage | None = None
        self._coder: Coder | None = None

    def add(self, link: ChainLink, said: str | None = None) -> None:
        """`said` is how it was written."""
        self._said, self._last = said or link.name, link
        link.join(self)

    def add_linear(self, stage: LinearStage) -> None:
        self._refuse_behind()
        if stage.learns and self._linear:
            raise CodecError(
                f'codec "{self.text}": "{self._said}" learns from the mean, so it must be the first link'
            )
        self._linear.append(stage)

    def add_selecting(self, stage: SelectingStage) -> None:
        self._refuse_behind()
        self._selecting = stage

    def end_with(self, coder: Coder) -> None:
        if self._coder is not None:
            self._refuse_after_coder()
        self._coder, self._coder_said = coder, self._said

    def codec(self) -> Codec:
        if self._coder is None and self._last is not None and self._last.default_coder is not None:
            self._last.default_coder.join(self)
        if self._coder is None:
            raise CodecError(
                f'codec "{self.text}" ends in a stage: add a coder behind it, for example ">> ternary"'
            )
        return Codec(self.text, tuple(self._linear), self._coder, self._selecting)

    def _refuse_behind(self) -> None:
        if self._coder is not None:
            self._refuse_after_coder()
        if self._selecting is not None:
            raise CodecError(
                f'codec "{self.text}": nothing but a coder can follow a stage that selects, '
                f'not "{self._said}"'
            )

    def _refuse_after_coder(self) -> None:
        raise CodecError(
            f'codec "{self.text}": "{self._coder_said}" packs numbers into bits, so it must be the last link'
        )
