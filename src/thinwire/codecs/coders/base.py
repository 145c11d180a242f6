"""What a coder is (options only) and what it becomes once bound to a lane (a Packer)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar

import torch
from torch import Tensor

from thinwire.codecs.link import Builder, ChainLink
from thinwire.kernels import Kernels
from thinwire.tensors.key import Key
from thinwire.tensors.layout import Layout


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


class Coder(ChainLink):
    """The last link of a codec: numbers to packed bits. `merge` says how its payloads become one."""

    own_dtype: ClassVar[bool] = False  # True: takes the tensors' own dtype, else float32
    gentle: ClassVar[bool] = False  # True: good for every tensor, norms and last layers too

    @property
    @abstractmethod
    def merge(self) -> Merge:
        """How its payloads merge; most coders say it with a plain attribute, `merge = Merge.GATHER`."""

    def at_strength(self, strength: float) -> Coder | None:
        """This coder with a part (0 to 1) of its strength, 0 the gentlest; None: it has no strength."""
        return None

    @abstractmethod
    def bind(self, layout: Layout, context: Context) -> Packer:
        """Makes the tables for one lane; raises PlanError if this world cannot be served."""

    def join(self, builder: Builder) -> None:
        builder.end_with(self)


@dataclass(frozen=True)
class Part:
    """A packer of some of a lane's numbers: elements first..last, counted over its tensors end to end."""

    packer: Packer
    first: int
    last: int


class Packer(ABC):
    """A coder bound to the tensors of a lane: all sizes are known before any data exist.

    A payload is `payload_bytes` bytes, whole granules; shards of it are whole granules too.
    """

    num_granules: int
    granule_bytes: int
    max_words: int = 0  # int32 words whose maximum over the ranks must be known before encoding
    wire_dtype: torch.dtype = torch.uint8  # what a SUM payload is added as
    merges: bool = True  # False: payloads are not merged on the way, `decode` takes them one by one

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

    @abstractmethod
    def moved(self, base: int) -> Packer:
        """The same packer for a buffer that begins at element `base` of this one's."""

    def in_place(self, x: Tensor) -> Tensor | None:
        """The bytes of x itself, where a SUM payload can be made, summed and read without any copy."""
        return None

    def maxima(self, x: Tensor, words: Tensor) -> None:  # noqa: B027 - many coders agree on nothing
        """Step 1, local: writes the `max_words` words of which all ranks take the maximum."""

    @abstractmethod
    def encode(self, x: Tensor, agreed: Tensor, key: Key, payload: Tensor) -> None:
        """Step 2, local and pure: x under the agreed words to payload bytes; a longer payload is padding."""

    def tallies(self) -> dict[str, dict[str, float]]:
        """What a person may want to know of the payload encoded last: numbers, by tensor and by name."""
        return {}

    @abstractmethod
    def merged_bytes(self, num_granules: int) -> int:
        """Bytes of `num_granules` merged granules."""

    @abstractmethod
    def merge(self, payloads: Tensor, agreed: Tensor, sums: Tensor) -> None:
        """Step 3, at the owner: (ranks, bytes) of the same granules to one merged piece."""

    @abstractmethod
    def decode(self, sums: Tensor, agreed: Tensor, x: Tensor) -> None:
        """Step 4: (shards, bytes) of merged pieces, all granules in order, to the mean over the ranks."""

    @abstractmethod
    def decode_own(self, payload: Tensor, agreed: Tensor, x: Tensor) -> None:
        """What this rank's payload alone stands for; error feedback and error statistics need it."""
