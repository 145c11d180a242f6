"""Top-k: only the values of largest magnitude travel, with their indices; and DGC, which builds on it."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction

import torch
from torch import Tensor

from thinwire.codecs.coder import UNIT, Coder, Context, GatherPacker, Merge, Packer, aligned, unit_size
from thinwire.codecs.floats import Dense
from thinwire.codecs.stage import NOTHING, SelectingStage
from thinwire.errors import CodecError, PlanError
from thinwire.kernels.sizes import high_bits
from thinwire.tensors import Key, Layout, Spec
from thinwire.texts import (
    START_RULE,
    check_start,
    number_or_off,
    option,
    read_chunk,
    show_chunk,
    show_number_or_off,
)

MAX_CHUNK = 2**31 - 1
MEAN_TIMES, MEAN_PART = 3, 8  # an owner keeps up to 3 k elements of a mean, and no more than one in 8
_OFF = math.inf


@dataclass(frozen=True)
class TopK(SelectingStage):
    """For each chunk of n elements (a tensor of up to `chunk` elements is one):

    1. k = ratio * n, rounded, at least 1; or n - floor(drop * n); or the given k
    2. the k elements of largest |x| are chosen, by bit pattern: NaN > Inf > numbers; ties: the lowest index
    3. their indices and values travel; decoding adds up all ranks' values in rank order and divides by N

    Behind `fourier` an element is a frequency, a pair of numbers, and |x| is the length of the pair.

    ||x - topk(x)||^2 <= (1 - k/n) ||x||^2: biased, so what is left out is held back (feedback "residual").
    With `drop` it is never more than drop * ||x||^2. `start`: steps that travel uncompressed before.

    Where owners encode the mean again (route "sharded"), it has up to N k elements that are not 0. The
    largest of them travel back: 3 k, but no more than an eighth of all elements, and at least k. About so
    many arrive by an all-gather among 4 workers.
    """

    feedback = "residual"
    default_coder = Dense()

    ratio: float = option(0.01, float, "a part of the elements, more than 0 and at most 1", repr)
    k: int = option(0, int, "a whole number of elements")
    chunk: int = option(UNIT, read_chunk, '"tensor", or a number of elements', show_chunk)
    drop: float = option(
        _OFF, number_or_off, 'a part of the elements, from 0 to less than 1, or "off"', show_number_or_off
    )
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise CodecError(
                f"topk: ratio={self.ratio:g}, the part that is kept, must be above 0 and at most 1"
            )
        if self.drop != _OFF and not 0 <= self.drop < 1:
            raise CodecError(
                f"topk: drop={self.drop:g}, the part that is dropped, must be at least 0 and less than 1"
            )
        if self.k < 0 or self.chunk < 0:
            raise CodecError(f"topk: k={self.k} and chunk={self.chunk} must not be negative")
        given = {"ratio": self.ratio != TopK.ratio, "k": self.k != 0, "drop": self.drop != _OFF}
        if sum(given.values()) > 1:
            said = " and ".join(f"{name}={getattr(self, name):g}" for name in given if given[name])
            raise CodecError(f"topk: {said} both say how much is kept; give one")
        if self.chunk_numel and self.k > self.chunk_numel:
            raise CodecError(f"topk: k={self.k} is more than chunk={self.chunk} elements; make k smaller")
        check_start("topk", self.start)

    @property
    def dense_steps(self) -> int:
        return self.start

    @property
    def chunk_numel(self) -> int:
        """Numbers that are chosen from at once, 0: a whole tensor. A given k is of the whole tensor, unless
        a chunk is given too."""
        return 0 if self.k and self.chunk == UNIT else self.chunk

    @property
    def theta(self) -> float | None:
        """The dropped part; a given k is another part of every tensor."""
        if self.drop != _OFF:
            return self.drop
        return None if self.k else 1 - self.ratio

    def at_level(self, level: float) -> TopK | None:
        """Drops `level` of what it drops now; a given k has only one level."""
        if self.theta is None or level >= 1:
            return None if self.theta is None else self
        if self.drop != _OFF:
            return replace(self, drop=level * self.drop)
        return replace(self, ratio=1 - level * self.theta)

    def check(self, coder: Coder) -> None:
        if coder.merge is Merge.INT:
            raise CodecError(
                f"topk cannot feed {type(coder).__name__.lower()} with shared scales: every rank chooses "
                'other elements, so payloads are decoded one by one; put scales=own, "fp16" or "bf16" behind'
            )

    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        return TopKPacker(self, coder, layout.units(unit_size(self.chunk_numel)), context)

    def kept(self, spec: Spec, group: int = 1, of_mean: bool = False) -> list[tuple[int, int, int]]:
        """(elements of a chunk, chunks, elements kept of each): whole chunks, then the rest of the tensor.

        An element is a group of numbers; the tensor and the option `chunk` are counted in numbers.
        """
        if spec.numel == 0:
            return []  # nothing to send
        numel = spec.numel // group
        if self.k > numel and not self.chunk_numel:
            raise PlanError(
                f"topk: k={self.k} is more than the {numel} elements of {spec.name}: give a ratio or a "
                f'smaller k, or keep it dense by a rule ({{"{spec.name}": "dense", "*": "topk:k={self.k}"}})'
            )
        if self.chunk_numel % group:
            raise PlanError(f"topk: chunk={self.chunk} must be a multiple of {group} behind fourier")
        chunk = min(self.chunk_numel // group or numel, numel)
        if chunk > MAX_CHUNK:
            raise PlanError(
                f"topk: {spec.name} has {chunk} elements to choose from, more than 2^31 - 1: use chunk="
            )
        cuts = [(chunk, numel // chunk), (numel % chunk, 1)]
        keep = self._keep_of_mean if of_mean else self._keep
        return [(size, count, keep(size)) for size, count in cuts if size]

    def _keep_of_mean(self, numel: int) -> int:
        k = self._keep(numel)
        return max(k, min(MEAN_TIMES * k, numel // MEAN_PART))

    def _keep(self, numel: int) -> int:
        """How many of `numel` elements; `drop` is the decimal as written, so that no rounding adds to it."""
        if self.k:
            return min(self.k, numel)
        if self.drop != _OFF:
            return numel - math.floor(Fraction(repr(self.drop)) * numel)
        return max(1, round(self.ratio * numel))


class TopKPacker(GatherPacker):
    """A payload is the indices of all chosen elements, then their values as the inner coder packs them.

    What that coder would agree on with other ranks (the scales of fp16) is this rank's own, and follows them.
    """

    def __init__(
        self, stage: TopK, coder: Coder, layout: Layout, context: Context, of_mean: bool = False
    ) -> None:
        self.stage, self.coder, self.of_mean = stage, coder, of_mean
        runs, self.num_values, end = [], 0, 0
        chosen, group = [], layout.group
        for spec, offset in zip(layout.specs, layout.offsets, strict=True):
            first = self.num_values
            for chunk, count, k in stage.kept(spec, group, of_mean):
                low_bits = best_low_bits(chunk, k)
                high = end + -(-count * k * low_bits // 8)
                runs.append([offset, chunk, count, k, low_bits, end, high, self.num_values, group])
                end = high + -(-count * high_bits(chunk, k, low_bits) // 8)
                offset += count * chunk * group
                self.num_values += count * k * group
            chosen.append(replace(spec, shape=(self.num_values - first,), dtype=torch.float32))
        self.table = context.table(runs)
        self.index_bytes, self.aligned_bytes = end, aligned(end)
        # as if alone: values travel undivided, so that exactly what is sent leaves the residual
        self.inner = coder.bind(Layout.packed(chosen), replace(context, world=1, rank=0))
        self.values_end = self.aligned_bytes + self.inner.num_granules * self.inner.granule_bytes
        self.used_bytes = self.values_end + 4 * self.inner.max_words
        super().__init__(layout, context, self.used_bytes)

    def rebind(self, layout: Layout) -> TopKPacker:
        return TopKPacker(self.stage, self.coder, layout, self.context, self.of_mean)

    def for_mean(self) -> TopKPacker:
        return TopKPacker(self.stage, self.coder, self.layout, self.context, of_mean=True)

    def encode(self, x: Tensor, shared: Tensor, key: Key, payload: Tensor) -> None:
        if not self.num_values:
            return  # only empty tensors
        values = self.context.room("chosen", self.num_values)
        self.context.kernels.topk.select(x, self.table, payload[: self.index_bytes], values)
        payload[self.index_bytes : self.aligned_bytes].zero_()
        payload[self.used_bytes : self.granule_bytes].zero_()
        words = payload[self.values_end : self.used_bytes].view(torch.int32)
        self.inner.maxima(values, words)
        self.inner.encode(values, words, key, payload[self.aligned_bytes : self.values_end])

    def add_up(self, payloads: Tensor, x: Tensor) -> None:
        count = payloads.shape[0]
        values = self.context.room("chosen", count, self.num_values)
        for payload, own in zip(payloads, values, strict=True):
            words = payload[self.values_end : self.used_bytes].view(torch.int32)
            self.inner.decode_local(payload[self.aligned_bytes : self.values_end], words, own)
        self.context.kernels.topk.scatter(
            payloads.reshape(-1), count, self.table, values.flatten(), 1 / count, x
        )

    def tallies(self) -> dict[str, dict[str, float]]:
        return self.inner.tallies()


def best_low_bits(chunk: int, k: int) -> int:
    """How many bits of an index are written as they are, so that all k of a chunk take the fewest bits.

    All of them (for few), none (a bitmap, for many), or about log2(chunk / k) (Elias-Fano): sizes decide,
    never data.

    >>> best_low_bits(6_553_600, 65_536), best_low_bits(1024, 1), best_low_bits(1024, 512)
    (6, 10, 0)
    """
    whole = (chunk - 1).bit_length()
    return min(range(whole + 1), key=lambda low: (k * low + high_bits(chunk, k, low), low))


WARM_UP_RATIOS = (0.25, 0.063, 0.015, 0.004, 0.001)


@dataclass(frozen=True)
class DGC(SelectingStage):
    """Top-k of the accumulated, momentum-corrected gradient (feedback "momentum"):

    1. in the first `warmup` steps, in five equal parts, .25 .063 .015 .004 .001 of the elements are kept, but
       never less than `ratio`; then `ratio` of them
    2. before all that, `start` steps travel uncompressed; nothing is masked then
    3. the rest is top-k; error feedback corrects momentum, masks and clips: feedback="momentum:0.9,clip=1"

    The optimizer must not apply momentum again: see `Compressor.check_optimizer`. The paper warms up for 5
    epochs (of about 90). Lin et al., "Deep Gradient Compression", ICLR 2018.
    """

    feedback = "momentum"
    default_coder = Dense()

    ratio: float = option(0.001, float, "a part of the elements, more than 0 and at most 1", repr)
    warmup: int = option(
        1000, int, 'a number of steps, 0 for none, or a part of the run as in "5%"', of_run=True
    )
    chunk: int = option(UNIT, read_chunk, '"tensor", or a number of elements', show_chunk)
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        if not 0 < self.ratio <= 1:
            raise CodecError(
                f"dgc: ratio={self.ratio:g}, the part that is kept, must be above 0 and at most 1"
            )
        if self.warmup < 0:
            raise CodecError(f"dgc: warmup={self.warmup} must be a number of steps, 0 for none")
        if self.chunk < 0:
            raise CodecError(f"dgc: chunk={self.chunk} must be a number of elements, or tensor")
        check_start("dgc", self.start)

    @property
    def dense_steps(self) -> int:
        return self.start

    @property
    def theta(self) -> float:
        return 1 - self.ratio

    def at_level(self, level: float) -> DGC:
        """Drops `level` of what it drops now, as top-k does; the warm-up stays."""
        return self if level >= 1 else dataclasses.replace(self, ratio=1 - level * self.theta)

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        """The ratio of this step.

        >>> [DGC(warmup=10).phase(step) for step in (0, 1, 2, 9, 10)]
        ['0.25', '0.25', '0.063', '0.001', '0.001']
        """
        warm = max(0, step - self.start)
        if warm >= self.warmup:
            return repr(self.ratio)
        return repr(max(self.ratio, WARM_UP_RATIOS[warm * len(WARM_UP_RATIOS) // self.warmup]))

    def check(self, coder: Coder) -> None:
        TopK(self.ratio).check(coder)

    def bind(self, coder: Coder, layout: Layout, context: Context, phase: str) -> Packer:
        return TopK(ratio=float(phase), chunk=self.chunk).bind(coder, layout, context, phase)
