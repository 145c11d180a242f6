"""What a tensor is without its data (Spec), and how tensors lie in a flat buffer (Layout)."""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Spec:
    """Name, shape and dtype of a tensor, no data.

    >>> Spec("conv.weight", (8, 3, 3, 3)).numel
    216
    """

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    def __str__(self) -> str:
        return f"{self.name}{list(self.shape)}:{str(self.dtype).removeprefix('torch.')}"


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

    @functools.cached_property
    def numel(self) -> int:
        return sum(spec.numel for spec in self.specs)

    @functools.cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.specs)

    @functools.cached_property
    def digest(self) -> bytes:
        """32 bytes that tell two layouts apart."""
        text = "\n".join(f"{spec}@{offset}" for spec, offset in zip(self.specs, self.offsets, strict=True))
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    @functools.cached_property
    def slices(self) -> tuple[slice, ...]:
        return tuple(
            slice(offset, offset + spec.numel) for spec, offset in zip(self.specs, self.offsets, strict=True)
        )

    def __hash__(self) -> int:
        return hash(self.digest)
