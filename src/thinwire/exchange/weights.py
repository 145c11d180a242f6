"""Weights of a sharded unit, gathered in few bits: as they are, or as differences to what all ranks hold."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from thinwire.codecs.codec import Codec, codec_of
from thinwire.codecs.coder import Context, aligned
from thinwire.errors import PlanError
from thinwire.groups.base import Group, all_gather_bytes
from thinwire.tensors import Key, Layout

DIFFERENCE = "difference"


@dataclass(frozen=True)
class WeightCodec:
    """What weights travel as: a coder alone, of values or of differences."""

    codec: Codec
    differs: bool

    @classmethod
    def of(cls, text: str) -> WeightCodec:
        """Reads "qsgd:8", or "difference >> qsgd:4"."""
        first, behind, rest = text.partition(">>")
        differs = bool(behind) and first.strip() == DIFFERENCE
        codec = codec_of(rest.strip() if differs else text)
        if len(codec.links) > 1 or codec.feedback != "none":
            raise PlanError(
                f'weights="{text}" must be a coder alone that needs no error feedback, as in "qsgd:8", or '
                f'behind "{DIFFERENCE} >>", as in "{DIFFERENCE} >> qsgd:4"'
            )
        return cls(codec, differs)

    def __str__(self) -> str:
        return f"{DIFFERENCE} >> {self.codec}" if self.differs else str(self.codec)


class PackedRow:
    """A rank's chunks of a unit as bytes: codes of the coded tensors, their scales, the others as they are.

    A coder is bound as if the rank were alone: its scales are its own, and travel with the codes.
    """

    def __init__(self, row: Layout, coded: Collection[str], codec: Codec, context: Context) -> None:
        chosen = [i for i, spec in enumerate(row.specs) if spec.name in coded]
        layout = Layout(tuple(row.specs[i] for i in chosen), tuple(row.offsets[i] for i in chosen))
        self.packer = codec.coder.bind(layout, replace(context, world=1, rank=0))
        self.raw = [where for i, where in enumerate(row.slices) if i not in chosen]
        self.code_bytes = aligned(self.packer.payload_bytes)
        self.word_bytes = aligned(4 * self.packer.max_words)
        self.dtype = row.specs[0].dtype
        raw_bytes = sum(where.stop - where.start for where in self.raw) * self.dtype.itemsize
        self.nbytes = self.code_bytes + self.word_bytes + aligned(raw_bytes)

    def encode(self, coded: Tensor, row: Tensor, key: Key, payload: Tensor) -> None:
        """`coded` has what is coded of the row, as float32."""
        words = self._words(payload)
        self.packer.maxima(coded, words)
        self.packer.encode(coded, words, key, payload[: self.packer.payload_bytes])
        for where, place in self._pairs(payload):
            place.copy_(row[where])

    def decode(self, payload: Tensor, coded: Tensor, row: Tensor) -> None:
        """Into `coded` what the codes stand for, into `row` the rest."""
        self.packer.decode_local(payload[: self.packer.payload_bytes], self._words(payload), coded)
        for where, place in self._pairs(payload):
            row[where] = place.to(row.dtype)

    def coded_slices(self, row: Layout) -> list[slice]:
        """Where the coded tensors lie."""
        return [where for where in row.slices if where not in self.raw]

    def _words(self, payload: Tensor) -> Tensor:
        return payload[self.code_bytes : self.code_bytes + 4 * self.packer.max_words].view(torch.int32)

    def _pairs(self, payload: Tensor) -> list[tuple[slice, Tensor]]:
        raw, pairs, end = payload[self.code_bytes + self.word_bytes :].view(self.dtype), [], 0
        for where in self.raw:
            start, end = end, end + where.stop - where.start
            pairs.append((where, raw[start:end]))
        return pairs


class UnitWeights:
    """The weights of one unit. With differences (SDP4Bit) every rank keeps what all hold of them:

    1. the first time weights travel as they are: base = w
    2. d = w - base of this rank's row, in few bits; all add what that stands for to the base
    3. the unit computes with the base, the same bits on all ranks

    The next difference is to that base, so errors never add up. Jia et al., "SDP4Bit", NeurIPS 2024.
    """

    def __init__(
        self, row: Layout, coded: Collection[str], how: WeightCodec, context: Context, seed: int
    ) -> None:
        self.row, self.context, self._seed, self.differs = row, context, seed, how.differs
        self.packed = PackedRow(row, coded, how.codec, context)
        self._coded = self.packed.coded_slices(row)
        self.base: Tensor | None = None  # (ranks, elements), float32
        self.pending: Tensor | None = None  # this rank's row of a base that was saved

    @property
    def gather_bytes(self) -> int:
        """What one rank sends for a gather."""
        return all_gather_bytes(self.packed.nbytes, self.context.world)

    @property
    def copy_bytes(self) -> int:
        """The memory of the base."""
        return 4 * self.row.numel * self.context.world if self.differs else 0

    def gather(self, group: Group, row: Tensor, rows: Tensor, step: int, again: bool) -> None:
        """Fills `rows` (ranks, elements) from this rank's `row`; `again`: as in this step's forward pass."""
        if not self.differs:
            self._send(group, row, row.float(), rows, step)
            return
        if self.base is None:
            self._begin(group, row, step)
        elif not again:
            assert self.base is not None
            own = row.float() - self.base[self.context.rank]
            self._send(group, row, own, self.base, step)
        rows.copy_(self.base)  # type: ignore[arg-type]

    def _begin(self, group: Group, row: Tensor, step: int) -> None:
        own = row.float().contiguous() if self.pending is None else self.pending
        everyone = own.new_empty(self.context.world, own.numel())
        group.all_gather(own.view(torch.uint8), everyone.view(torch.uint8)).wait()
        self.base, resumed, self.pending = everyone, self.pending is not None, None
        if resumed:  # a base that was saved is older than the weights
            self._send(group, row, row.float() - everyone[self.context.rank], everyone, step)

    def _send(self, group: Group, row: Tensor, coded: Tensor, rows: Tensor, step: int) -> None:
        """`rows`: those of all ranks; with differences they are added to what is there."""
        world, key = self.context.world, Key(self._seed, step, 2 * self.context.world + self.context.rank)
        payload = torch.zeros(self.packed.nbytes, dtype=torch.uint8, device=row.device)
        everyone = payload.new_empty(world, self.packed.nbytes)
        self.packed.encode(coded.contiguous(), row, key, payload)
        group.all_gather(payload, everyone).wait()
        decoded = torch.empty(self.row.numel, dtype=torch.float32, device=row.device)
        for theirs, target in zip(everyone, rows, strict=True):
            self.packed.decode(theirs, decoded, target)
            for where in self._coded:
                target[where] = (target[where] + decoded[where]) if self.differs else decoded[where]
