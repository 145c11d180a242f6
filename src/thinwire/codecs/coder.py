"""A coder (options only), the packer it becomes once bound to a lane, and packers that are gathered."""

from __future__ import annotations

import functools
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate, pairwise
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor

from thinwire.deprecated import take_former_names
from thinwire.devices import HOST, sent
from thinwire.kernels import Kernels
from thinwire.tensors import Key, Layout, Scratch
from thinwire.texts import show_options


class Builder(Protocol):
    """A codec in the making (codec.py): every link tells it what it is."""

    def add_linear(self, stage: Any) -> None: ...

    def add_selecting(self, stage: Any) -> None: ...

    def end_with(self, coder: Any) -> None: ...


class ChainLinks:
    """ChainLinks one behind the other, as they are written with ">>".

    >>> from thinwire.codecs.floats import Cast
    >>> from thinwire.codecs.topk import TopK
    >>> (TopK(0.01) >> Cast("bf16")).name
    'TopK() >> Cast(to=bf16)'
    """

    def __init__(self, links: Iterable[ChainLink]) -> None:
        self.links = tuple(links)

    @property
    def name(self) -> str:
        return " >> ".join(link.name for link in self.links)

    def __rshift__(self, behind: ChainLink | ChainLinks) -> ChainLinks:
        return ChainLinks((*self.links, *behind.links))


FORMER_LINK_NAMES = {"memory": "feedback", "at_strength": "at_level", "gentle": "near_lossless"}  # until 0.4


class ChainLink(ABC):
    """What stages and coders have in common."""

    default_coder: ClassVar[ChainLink | None] = None  # what packs the values of a chain that ends here

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_former_names(cls, FORMER_LINK_NAMES)

    @property
    def feedback(self) -> str:
        """The error feedback that this link asks for: "residual" if it is biased."""
        return "none"

    @property
    def dense_steps(self) -> int:
        """Steps at the start in which a codec that ends in it sends everything uncompressed."""
        return 0

    @property
    def name(self) -> str:
        """Its class with every option that is not its default: equal names mean equal bytes."""
        return f"{type(self).__name__}({show_options(self)})"

    @property
    def links(self) -> tuple[ChainLink, ...]:
        """Itself, as a chain of one."""
        return (self,)

    def __rshift__(self, behind: ChainLink | ChainLinks) -> ChainLinks:
        return ChainLinks((*self.links, *behind.links))

    @abstractmethod
    def join(self, builder: Builder) -> None:
        """Tells the builder which kind of link it is."""


class Merge(Enum):
    """How payloads of several ranks become one: it follows from the links of a codec."""

    SUM = "sum"  # payloads add as floats
    INT = "int"  # payloads add exactly, as integers under a scale that all ranks share
    GATHER = "gather"  # every payload is decoded by itself, then the values are added


@dataclass(frozen=True)
class Context:
    """Where a lane is coded: what is bound besides the tensors."""

    world: int
    rank: int
    device: torch.device
    kernels: Kernels

    @property
    def tables(self) -> torch.device:
        """Where its kernels read tables and keys: on the host, unless the host only launches them."""
        return self.device if self.kernels.on_device else HOST

    def table(self, rows: Sequence[Sequence[int]]) -> Tensor:
        """A table of integers as kernels take it."""
        return sent(torch.tensor(rows, dtype=torch.int64).flatten(), self.tables)

    def room(self, name: str, *shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        """Memory for what one call needs until it returns; the next one that asks by this name gets it, too.

        So a steady step takes no new memory: a lane is coded by one thread, and on a device in one stream.
        """
        return self._scratch.take(name, math.prod(shape) * dtype.itemsize).view(dtype).view(shape)

    @functools.cached_property
    def _scratch(self) -> Scratch:
        return Scratch(self.device)


class Coder(ChainLink):
    """The last link of a codec: values to packed bits. `merge` says how its payloads become one."""

    own_dtype: ClassVar[bool] = False  # True: takes the tensors' own dtype, else float32
    near_lossless: ClassVar[bool] = False  # True: good for every tensor, norms and last layers too

    @property
    @abstractmethod
    def merge(self) -> Merge:
        """How its payloads merge; most coders say it with a plain attribute, `merge = Merge.GATHER`."""

    @property
    def cuts_anywhere(self) -> bool:
        """Whether any elements of a tensor, one behind the other, can be coded by themselves."""
        return True

    def at_level(self, level: float) -> Coder | None:
        """This coder at a compression level from 0 (least) to 1 (as it is); None: it has only one."""
        return None

    @abstractmethod
    def bind(self, layout: Layout, context: Context) -> Packer:
        """Makes the tables for one lane; raises PlanError if this world cannot be served."""

    def join(self, builder: Builder) -> None:
        builder.end_with(self)


@dataclass(frozen=True)
class Part:
    """A packer of some of a lane's values: elements first..last, counted over its tensors end to end."""

    packer: Packer
    first: int
    last: int


class Packer(ABC):
    """A coder bound to the tensors of a lane: all sizes are known before any data exist.

    A payload is `payload_bytes` bytes, whole granules; shards of it are whole granules too.
    """

    num_granules: int
    granule_bytes: int
    context: Context
    max_words: int = 0  # int32 words whose maximum over the ranks must be known before encoding
    wire_dtype: torch.dtype = torch.uint8  # what a SUM payload is added as
    reencodes: bool = False  # True: owners decode what they get and encode the mean again (two_phase.py)
    merges: bool = True  # False: payloads are not merged on the way, `decode` takes them one by one

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        take_former_names(cls, {"decode_own": "decode_local"})

    @property
    def payload_bytes(self) -> int:
        """Bytes that one rank makes of this lane."""
        return self.num_granules * self.granule_bytes

    @abstractmethod
    def parts(self, count: int) -> list[Part]:
        """About `count` packers that together do what this one does.

        They let one part be encoded while another travels. A packer that cannot be cut gives itself.
        """

    def cut_points(self) -> Sequence[int] | None:
        """The elements, counted end to end, at which `span` may cut; None: at every one. Empty: nowhere."""
        return ()

    def span(self, first: int, last: int) -> Packer:
        """The packer of elements first..last, which lie end to end in a buffer of their own."""
        raise NotImplementedError(f"{type(self).__name__} cannot be fed part by part")

    def shards(self, count: int) -> list[Packer]:
        """`count` packers of equally many tensors each, for the same buffer and under the same shared words.

        Only of a lane that is `count` times the same tensors, by shape.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot be cut between tensors")

    @abstractmethod
    def moved(self, base: int) -> Packer:
        """The same packer for a buffer that begins at element `base` of this one's."""

    def in_place(self, x: Tensor) -> Tensor | None:
        """The bytes of x itself, where a SUM payload can be made, summed and read without any copy."""
        return None

    def maxima(self, x: Tensor, words: Tensor) -> None:  # noqa: B027 - many coders share nothing
        """Step 1, local: writes the `max_words` words of which all ranks take the maximum."""

    @abstractmethod
    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        """Step 2, local and pure: x under the shared words to payload bytes; a longer payload is padding."""

    def tallies(self) -> dict[str, dict[str, float]]:
        """What a person may want to know of the payload encoded last: numbers, by tensor and by name."""
        return {}

    @abstractmethod
    def merged_bytes(self, num_granules: int) -> int:
        """Bytes of `num_granules` merged granules."""

    @abstractmethod
    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        """Step 3, at the owner: (ranks, bytes) of the same granules to one merged piece."""

    @abstractmethod
    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        """Step 4: (shards, bytes) of merged pieces, all granules in order, to the mean over the ranks."""

    @abstractmethod
    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        """What this rank's payload alone stands for; error feedback and error statistics need it."""


UNIT = 1 << 20  # elements: a larger tensor is coded in pieces of this size, so that one travels meanwhile
ALIGN = 8  # payloads are whole multiples of this many bytes, so that no copy is needed behind the network


class GatherPacker(Packer):
    """The payload of a lane whose tensors, or units of them, are coded one by one, each for itself.

    A lane may therefore be cut between any two units: what they become does not depend on their neighbours.
    A coder of this kind has to say how many bytes it makes, how it encodes, and how payloads add up.
    """

    num_granules = 1
    merges = False

    def __init__(self, layout: Layout, context: Context, granule_bytes: int) -> None:
        self.layout, self.context = layout, context
        self.granule_bytes = aligned(granule_bytes)

    @abstractmethod
    def rebind(self, layout: Layout) -> GatherPacker:
        """The same coder bound to other units."""

    def for_mean(self) -> GatherPacker:
        """What the owner of a share encodes the mean of all ranks' payloads with (two_phase.py)."""
        return self

    @abstractmethod
    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        """x = the mean, in rank order, of what the payloads (ranks, bytes) stand for."""

    def cut_points(self) -> list[int]:
        return [0, *accumulate(spec.numel for spec in self.layout.specs)]

    def parts(self, count: int) -> list[Part]:
        ranges = cut(self.layout.numel, self.cut_points(), count)
        return [Part(self.rebind(self._units(first, last)), first, last) for first, last in ranges]

    def span(self, first: int, last: int) -> Packer:
        units = self._units(first, last)
        return self.rebind(Layout.packed(units.specs, units.group))

    def shards(self, count: int) -> list[Packer]:
        return [self.rebind(rows) for rows in self.layout.shards(count)]

    def moved(self, base: int) -> Packer:
        return self.rebind(self.layout.moved(base))

    def merged_bytes(self, num_granules: int) -> int:
        return num_granules * self.granule_bytes * self.context.world

    def merge(self, payloads: Tensor, shared: Tensor, sums: Tensor) -> None:
        sums.copy_(payloads.reshape(-1))

    def decode(self, sums: Tensor, shared: Tensor, x: Tensor) -> None:
        if self.granule_bytes:  # else only empty tensors
            self.add_up(sums.reshape(self.context.world, self.granule_bytes), x)

    def decode_local(self, payload: Tensor, shared: Tensor, x: Tensor) -> None:
        if self.granule_bytes:
            self.add_up(payload[: self.granule_bytes].unsqueeze(0), x)

    def _units(self, first: int, last: int) -> Layout:
        """The units that are the elements first..last."""
        specs, offsets = self.layout.specs, self.layout.offsets
        chosen = [i for i, (a, b) in enumerate(pairwise(self.cut_points())) if first <= a and b <= last]
        return Layout(tuple(specs[i] for i in chosen), tuple(offsets[i] for i in chosen), self.layout.group)


def unit_size(block: int) -> int:
    """Elements of a unit that is whole blocks, about UNIT of them; 0, a tensor in one block, is not cut.

    >>> unit_size(512), unit_size(3 << 20), unit_size(0)
    (1048576, 3145728, 0)
    """
    return max(1, UNIT // block) * block if block else 0


def aligned(nbytes: int) -> int:
    return -(-nbytes // ALIGN) * ALIGN


def cut(end: int, points: Iterable[int], count: int) -> list[tuple[int, int]]:
    """At most `count` ranges that are 0..end together, about equal, cut only at the given points.

    >>> cut(100, [0, 10, 60, 90], 3)
    [(0, 60), (60, 90), (90, 100)]
    """
    ends: list[int] = []
    for point in points:
        if len(ends) < count - 1 and point >= end * (len(ends) + 1) / count and point < end:
            ends.append(point)
    return list(zip([0, *ends], [*ends, end], strict=True))
