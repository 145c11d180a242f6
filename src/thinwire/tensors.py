"""Tensors without data: specs, layouts in a flat buffer, keys of random numbers, reusable buffers."""

from __future__ import annotations

import functools
import hashlib
import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

_SHORT = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}


@dataclass(frozen=True)
class Spec:
    """Name, shape and dtype of a tensor, no data.

    >>> Spec("conv.weight", (8, 3, 3, 3)).numel
    216
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    unit: int = 0  # a tensor that is coded in several pieces: which of them this is

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Of its elements as they are."""
        return self.numel * self.dtype.itemsize

    @property
    def key(self) -> str:
        """What random draws go by: the name, and the unit if it is not the first."""
        return f"{self.name}[{self.unit}]" if self.unit else self.name

    def __str__(self) -> str:
        return f"{self.key}{list(self.shape)}:{str(self.dtype).removeprefix('torch.')}"


def plain_name(specs: Iterable[Spec]) -> str:
    """What people call gradients that are sent as they are: "fp32" if all are, "plain" if they differ.

    >>> plain_name([Spec("a", (2,)), Spec("b", (3,))])
    'fp32'
    """
    dtypes = {spec.dtype for spec in specs}
    return _SHORT.get(dtypes.pop(), "plain") if len(dtypes) == 1 else "plain"


@dataclass(frozen=True)
class Piece:
    """Elements of a tensor, one behind the other: which ones, and where they lie in a buffer."""

    name: str
    numel: int  # of the whole tensor
    start: int  # the first of them, counted from the tensor's start
    offset: int
    count: int

    @property
    def elements(self) -> slice:
        return slice(self.start, self.start + self.count)

    @property
    def where(self) -> slice:
        return slice(self.offset, self.offset + self.count)

    def moved(self, base: int) -> slice:
        """Where they lie in a buffer that begins at element `base` of the other."""
        return slice(self.offset - base, self.offset - base + self.count)


@dataclass(frozen=True)
class Layout:
    """Tensors in one flat buffer: tensor i is `buffer[offsets[i] : offsets[i] + specs[i].numel]`.

    Between the tensors of a layout there may be others: a lane takes its tensors where they lie. `group`
    numbers, one behind the other, stand or fall together (2: a complex number); a tensor is whole groups.
    """

    specs: tuple[Spec, ...]
    offsets: tuple[int, ...]
    group: int = 1

    def __post_init__(self) -> None:
        if any(spec.numel % self.group for spec in self.specs):
            raise ValueError(
                f"a tensor is not whole groups of {self.group}: {', '.join(map(str, self.specs))}"
            )

    @classmethod
    def packed(cls, specs: Iterable[Spec], group: int = 1) -> Layout:
        """The tensors end to end.

        >>> Layout.packed([Spec("a", (2, 3)), Spec("b", (4,))]).offsets
        (0, 6)
        """
        specs = tuple(specs)
        offsets, end = [], 0
        for spec in specs:
            offsets.append(end)
            end += spec.numel
        return cls(specs, tuple(offsets), group)

    def moved(self, base: int) -> Layout:
        """The same tensors in a buffer that begins at element `base` of this one."""
        return Layout(self.specs, tuple(offset - base for offset in self.offsets), self.group)

    def units(self, size: int) -> Layout:
        """Every tensor in units of at most `size` elements, each of which is coded by itself; 0: not cut.

        >>> [str(spec) for spec in Layout.packed([Spec("a", (2, 3)), Spec("b", (2,))]).units(4).specs]
        ['a[4]:float32', 'a[1][2]:float32', 'b[2]:float32']
        """
        specs, offsets = [], []
        for spec, offset in zip(self.specs, self.offsets, strict=True):
            for unit, first in enumerate(range(0, spec.numel, size or max(1, spec.numel))):
                count = min(size or spec.numel, spec.numel - first)
                specs.append(Spec(spec.name, (count,), spec.dtype, unit))
                offsets.append(offset + first)
        return Layout(tuple(specs), tuple(offsets), self.group)

    def pieces(self, first: int = 0, last: int | None = None) -> tuple[Piece, ...]:
        """The elements first..last, counted over all tensors end to end, tensor by tensor.

        >>> [piece.elements for piece in Layout.packed([Spec("a", (4,)), Spec("b", (4,))]).pieces(2, 5)]
        [slice(2, 4, None), slice(0, 1, None)]
        """
        found, end = [], 0
        last = self.numel if last is None else last
        before: Counter[str] = Counter()  # elements of units of the same tensor
        for spec, offset in zip(self.specs, self.offsets, strict=True):
            start, end = end, end + spec.numel
            low, high = max(first, start), min(last, end)
            if low < high:
                at = before[spec.name] + low - start
                found.append(Piece(spec.name, self._numels[spec.name], at, offset + low - start, high - low))
            before[spec.name] += spec.numel
        return tuple(found)

    @functools.cached_property
    def _numels(self) -> Counter[str]:
        """Elements of each tensor, in all its units."""
        numels: Counter[str] = Counter()
        for spec in self.specs:
            numels[spec.name] += spec.numel
        return numels

    def shards(self, count: int) -> list[Layout]:
        """`count` layouts of equally many tensors each, in the same buffer."""
        size = len(self.specs) // count
        cuts = [slice(size * shard, size * (shard + 1)) for shard in range(count)]
        return [Layout(self.specs[cut], self.offsets[cut], self.group) for cut in cuts]

    @functools.cached_property
    def numel(self) -> int:
        """Elements of all tensors."""
        return sum(spec.numel for spec in self.specs)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the tensors."""
        return tuple(spec.name for spec in self.specs)

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that tell two layouts apart."""
        text = "\n".join(f"{spec}@{offset}" for spec, offset in zip(self.specs, self.offsets, strict=True))
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    @functools.cached_property
    def slices(self) -> tuple[slice, ...]:
        """Where each tensor lies."""
        return tuple(
            slice(offset, offset + spec.numel) for spec, offset in zip(self.specs, self.offsets, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.digest)


_MASK = (1 << 64) - 1
_ALL_RANKS = -1


@dataclass(frozen=True)
class Key:
    """Gives every tensor its own two 32-bit key words for one step on one rank.

    The words do not depend on buckets, on the order of tensors or on the kernels that use them.

    >>> Key(seed=1, step=2, rank=0).words("fc.weight") == Key(seed=1, step=2, rank=0).words("fc.weight")
    True
    """

    seed: int
    step: int
    rank: int

    @property
    def shared(self) -> Key:
        """The key that all ranks have in this step, for what they must draw alike."""
        return replace(self, rank=_ALL_RANKS)

    def words(self, name: str) -> tuple[int, int]:
        """The two key words of a tensor."""
        mixed = mix(self.seed & _MASK)
        for part in (self.step, _name_hash(name), self.rank):
            mixed = mix(mixed ^ (part & _MASK))
        return mixed & 0xFFFFFFFF, mixed >> 32


def mix(z: int) -> int:
    """The finalizer of splitmix64: a bijection of 64 bits."""
    z = (z + 0x9E3779B97F4A7C15) & _MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & _MASK
    return z ^ (z >> 31)


@functools.cache
def _name_hash(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Scratch:
    """Named buffers that grow and are handed out again; one exchange at a time may use them."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._buffers: dict[str, Tensor] = {}

    def take(self, name: str, nbytes: int) -> Tensor:
        """The first `nbytes` bytes of the buffer of that name; what is in them is undefined."""
        buffer = self._buffers.get(name)
        if buffer is None or buffer.numel() < nbytes:
            buffer = self._buffers[name] = torch.empty(
                max(nbytes, 64), dtype=torch.uint8, device=self._device
            )
        return buffer[:nbytes]

    @property
    def nbytes(self) -> int:
        return sum(buffer.numel() for buffer in self._buffers.values())
