"""A codec: stages, then a coder, and the parser of codec texts. How payloads merge follows from its links."""

from __future__ import annotations

import dataclasses
import importlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from thinwire.codecs.catalog import CATALOG, check_codec_names
from thinwire.codecs.coder import ChainLink, ChainLinks, Coder, Context, Merge, Packer
from thinwire.codecs.floats import Dense
from thinwire.codecs.stage import (
    NOTHING,
    BoundStage,
    Identity,
    Learned,
    LinearStage,
    RangedStage,
    SelectingStage,
    Stage,
)
from thinwire.deprecated import FormerAttribute
from thinwire.devices import FINITE, StepVerdict
from thinwire.errors import CodecError
from thinwire.tensors import Key, Layout, Spec
from thinwire.texts import option_texts, read_options


@dataclass(frozen=True, eq=False)
class BoundCodec:
    """`layout` is that of the gradients, `inner` that of the values which the packer sees."""

    layout: Layout
    context: Context
    stages: Sequence[BoundStage]
    inner: Layout
    packer: Packer
    phase: str
    fixed: bool  # whether the stages never change, so that error feedback may live behind them

    @cached_property
    def ranged(self) -> RangedStage | None:
        """The only stage, if it can be run part by part and the packer need not see all values first."""
        at_once = len(self.stages) != 1 or self.packer.max_words or self.packer.cut_points() == ()
        return None if at_once else self.stages[0].by_parts

    @property
    def num_summands(self) -> int:
        """Values that its stages add up over all ranks before encoding."""
        return sum(stage.num_summands for stage in self.stages)

    def maxima(self, y: Tensor, words: Tensor | None = None) -> Tensor:
        """The words of which all ranks take the maximum before encoding."""
        if words is None:
            words = torch.empty(self.packer.max_words, dtype=torch.int32, device=y.device)
        self.packer.maxima(y, words.zero_())
        return words

    def decoded(self, x: Tensor) -> Tensor:
        """A buffer for decoded values before `finish`: x itself if there are no stages."""
        return x.new_empty(self.inner.numel) if self.stages else x

    def finish(self, y: Tensor, x: Tensor) -> Tensor:
        """Decoded values, as the packer sees them, to the tensors of x; returns what the first stage sees."""
        for before, stage in reversed(list(zip(self.stages, self.stages[1:], strict=False))):
            outer = y.new_empty(before.out.numel)
            stage.inverse(y, outer)
            y = outer
        if self.stages:
            self.stages[0].inverse(y, x)
        return y

    def begin(self, loss_scale: float, measured: bool, key: Key = Key(0, 0, 0)) -> None:
        """Tells the stages the gradients' loss scale, whether their exchange is measured, and its key."""
        for stage in self.stages:
            stage.loss_scale, stage.measured, stage.key = loss_scale, measured, key.shared

    def tallies(self) -> dict[str, dict[str, float]]:
        """What its stages counted in an exchange that was measured, by tensor and by name."""
        found: dict[str, dict[str, float]] = {}
        for stage in self.stages:
            for name, values in stage.tallies().items():
                found.setdefault(name, {}).update(values)
        return found

    def learn(self, y: Tensor, x: Tensor, verdict: StepVerdict = FINITE) -> None:
        """Shows the mean to the first stage: bases and samples come from the REDUCED result."""
        if self.stages:
            self.stages[0].learn(y, x, verdict)


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
    def reencodes(self) -> bool:
        """True if an owner can encode the mean of its share again: two phases instead of an all-gather."""
        fixed = all(stage.fixed for stage in self.stages)  # behind them lives what the owner holds back
        return self.merge is Merge.GATHER and fixed and self.coder.cuts_anywhere

    @cached_property
    def own_dtype(self) -> bool:
        """True if a tensor travels as it is, in its own dtype."""
        return self.coder.own_dtype and len(self.links) == 1

    @property
    def near_lossless(self) -> bool:
        """True if no tensor needs to be kept dense beside it."""
        return self.coder.near_lossless and len(self.links) == 1

    @property
    def feedback(self) -> str:
        """The error feedback it asks for: that of the first biased link."""
        return next((link.feedback for link in self.links if link.feedback != "none"), "none")

    memory = FormerAttribute("feedback")
    has_strength = FormerAttribute("adjustable")
    at_strength = FormerAttribute("at_level")

    @cached_property
    def learns(self) -> bool:
        """True if a stage learns from the means."""
        return any(stage.learns for stage in self.stages)

    @cached_property
    def draws_alike(self) -> bool:
        """True if all ranks must draw the same random numbers: their seeds must be equal."""
        return any(stage.draws_alike for stage in self.stages)

    @property
    def theta(self) -> float | None:
        """The part of the values that it drops, None if it drops nothing or that differs by tensor."""
        return None if self.selecting is None else self.selecting.theta

    @property
    def adjustable(self) -> bool:
        """True if a schedule can lower its compression level."""
        links: tuple[Stage | Coder, ...] = self._selecting or (*self.stages, self.coder)
        return any(link.at_level(1.0) is not None for link in links)

    def at_level(self, level: float) -> Codec:
        """This codec at a compression level from 0 to 1, under the same name; itself if it has only one.

        A selecting stage takes the whole change: what it selects is coded as before. Without one, the level
        of every adjustable link changes.
        """
        if level >= 1 or not self.adjustable:
            return self
        if self.selecting is not None:
            return replace(self, selecting=self.selecting.at_level(level))
        stages = tuple(stage.at_level(level) or stage for stage in self.stages)
        return replace(self, stages=stages, coder=self.coder.at_level(level) or self.coder)

    @property
    def canonical(self) -> str:
        """Every link with every option that is not its default: equal texts mean equal bytes on the wire."""
        return " >> ".join(link.name for link in self.links)

    @cached_property
    def dense_steps(self) -> int:
        """Steps before the first compressed one, in which everything is sent."""
        return max(link.dense_steps for link in self.links)

    @cached_property
    def has_phases(self) -> bool:
        """Whether what it sends can change from one step to another."""
        return bool(self.dense_steps) or any(
            type(stage).phase is not Stage.phase for stage in self._all_stages
        )

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
        """What its dense start sends: the values behind its linear stages, as floats.

        Without stages it gets the identity: error feedback needs float32 whatever dtype the gradients have.
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
        both = self._linear[-1].with_behind(stage) if self._linear else None
        self._linear[-1:] = [*self._linear[-1:], stage] if both is None else [both]

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
            f'codec "{self.text}": "{self._coder_said}" packs values into bits, so it must be the last link'
        )


CodecLike = str | Codec | ChainLink | ChainLinks


def parse(text: str, total_steps: int | None = None) -> Codec:
    """Reads a codec text: links joined by ">>", each `name`, `name:value` or `name:option=value,...`.

    A name with a dot is a class of your own: "mymodule.MyCodec:bits=4". Numbers of steps may be parts of a
    run of `total_steps`: "topk:0.01,start=5%".

    >>> parse("terngrad:clip=off,block=2048").merge.value
    'int'
    """
    check_codec_names(text)
    draft = Draft(text)
    for part in text.split(">>"):
        draft.add(_link(part.strip(), text, total_steps), part.strip())
    return draft.codec()


def codec_of(value: CodecLike, total_steps: int | None = None) -> Codec:
    """What a user may give as a codec: a text, links (`TopK(0.01) >> Cast("bf16")`), or a codec.

    >>> from thinwire import TernGrad
    >>> codec_of(TernGrad(clip=2.0)).name
    'TernGrad(clip=2.0)'
    """
    if isinstance(value, str):
        return parse(value, total_steps)
    try:
        return Codec.of(value.links, value.name)
    except AttributeError:
        raise CodecError(
            f'{value!r} is no codec: give a text like "terngrad", or an object like tw.TernGrad(clip=2.0)'
        ) from None


def _link(part: str, text: str, total_steps: int | None) -> ChainLink:
    """What a part of a codec text stands for."""
    name, _, rest = (piece.strip() for piece in part.partition(":"))
    entry = CATALOG.get(name)
    made: type[ChainLink] = _own_class(name, text) if entry is None else entry.load()
    fixed = {} if entry is None else entry.fixed
    bare = _first_option(made) if entry is None else entry.bare
    texts = option_texts(rest, bare, name, f'codec "{text}"')
    for option in texts:
        if option in fixed:
            raise CodecError(f'codec "{text}": {option} is fixed by the name "{name}"')
    options = read_options(made, texts, f'codec "{text}": {name}', total_steps)
    return made(**fixed, **options)


def _own_class(name: str, text: str) -> type[ChainLink]:
    """A class of the user's, by its path; a bare value is for its first option."""
    module, _, cls = name.rpartition(".")
    try:
        link = getattr(importlib.import_module(module), cls)
    except (ImportError, AttributeError) as error:
        raise CodecError(
            f'codec "{text}": "{name}" cannot be imported ({error}): write module.Class, and see that the '
            "module is installed or on PYTHONPATH on every rank"
        ) from error
    if not (isinstance(link, type) and issubclass(link, ChainLink) and dataclasses.is_dataclass(link)):
        raise CodecError(
            f'codec "{text}": {name} is no link: derive it from thinwire.Coder or a stage, as a frozen '
            "dataclass (docs/how-to/add-a-codec.md)"
        )
    return link


def _first_option(made: Any) -> str | None:
    return next((option.name for option in dataclasses.fields(made)), None)
