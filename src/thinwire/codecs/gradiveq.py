"""GradiVeQ: slices of gradients as coordinates in a basis that all ranks share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from thinwire.codecs.coder import Context
from thinwire.codecs.floats import Dense
from thinwire.codecs.pca import (
    CHANNEL,
    MEMORY,
    ROW,
    Components,
    Cut,
    Moments,
    Slices,
    orders_of,
    read_slice,
    row_slice,
    scalar,
    show_slice,
)
from thinwire.codecs.stage import (
    NOTHING,
    BoundIdentity,
    BoundStage,
    Learned,
    LinearStage,
    RangedStage,
    owner,
)
from thinwire.devices import FINITE, StepVerdict, sent
from thinwire.errors import CodecError
from thinwire.tensors import Layout, Spec
from thinwire.texts import START_RULE, check_start, number_or_off, one_of, option, show_number_or_off


@dataclass(frozen=True)
class Captured:
    """Energies of some slices and a tail."""

    energy: float = 0.0
    lost: float = 0.0

    @classmethod
    def of(cls, rows: Tensor, mean: Tensor, coordinates: Tensor, tail: Tensor) -> Captured:
        """||g - U U^T (g - mu) - mu||^2 = ||g - mu||^2 - ||y||^2: U is orthonormal; the tail is exact."""
        return cls(_energy(rows) + _energy(tail), _energy(rows - mean) - _energy(coordinates))

    def plus(self, other: Captured) -> Captured:
        return Captured(self.energy + other.energy, self.lost + other.lost)

    @property
    def share(self) -> float:
        """The part of the energy that is not lost."""
        return min(1.0, 1 - self.lost / self.energy) if self.energy > 0 else 1.0


def _energy(x: Tensor) -> float:
    return float(torch.linalg.vector_norm(x, dtype=torch.float64)) ** 2


START, SAMPLE, CHOOSE, REFRESH, PROJECT = "start", "sample", "choose", "refresh", "project"
KEPT = "kept"  # the share of the gradient's energy that is sent
_FACTS = 2  # beside basis and mean: the captured energy, and the order
_FEW = 64  # slices: tensors with fewer a step are sampled wholly
_GROUP = 8  # slices: parts end on whole groups
_OFF = math.inf


@dataclass(frozen=True)
class GradiVeQ(LinearStage):
    """Gradient vector quantization: for each layer, cut into slices g of M = `slice` elements,

    1. for Lt = `sample` steps gradients travel whole; slices of the MEAN gradient are the samples
    2. refresh: the layer's owner computes mu = mean(samples) and U = the d = M / `ratio` leading eigenvectors
       of their covariance; all ranks get them (owner's numbers + zeros = an exact broadcast)
    3. for p = `compress` steps worker i sends y_i = U^T (g_i - mu); the mean is U mean_i(y_i) + mu

    Then again from 1. Payloads add as plain floats: no decoding on the way around the ring, one at the end.
    What lies outside the span of U is dropped; residual feedback keeps it for the next sample phase, in which
    everything is sent.

    `slice=row`: a slice is a row of the tensor's matrix (all that belongs to one output), M its length and
    d = M / ratio, rounded down. Rows of more than 1,024 elements are cut into the fewest equal pieces that
    are not longer. `start`: steps that travel uncompressed before the first sample.

    `order`: "memory" (as the tensor lies), "channel" (channels fastest), "auto" (the one that drops less).
    `energy`: the fewest eigenvectors that hold this share of the variance, at most M / ratio. `stride`: a
    step samples every stride-th slice, the next step others. A tail shorter than M travels as it is.

    Yu et al., "GradiVeQ", NeurIPS 2018.
    """

    learns = True
    default_coder = Dense()

    ratio: float = option(8.0, float, "a number of at least 1 that divides slice", lambda r: f"{r:g}")
    slice: int = option(256, read_slice, '"row", or a number of elements', show_slice)
    sample: int = option(100, int, "a number of steps, at least 1")
    compress: int = option(400, int, "a number of steps, at least 1")
    order: str = option("memory", one_of("memory", "channel", "auto"), '"memory", "channel" or "auto"')
    layers: str = option("conv", one_of("conv", "all"), '"conv" or "all"')
    energy: float = option(
        _OFF, number_or_off, 'a share of the variance between 0 and 1, or "off"', show_number_or_off
    )
    stride: int = option(8, int, "a number of slices, at least 1")
    start: int = option(0, int, START_RULE, of_run=True)

    def __post_init__(self) -> None:
        for name in ("sample", "compress", "stride"):
            if getattr(self, name) < 1:
                raise CodecError(f"gradiveq: {name}={getattr(self, name)} must be at least 1")
        check_start("gradiveq", self.start)
        self._check_slice()
        if self.energy != _OFF and not 0 < self.energy <= 1:
            raise CodecError(f"gradiveq: energy={self.energy:g} must be above 0 and at most 1, or off")
        if self.energy != _OFF and self.sample < 2:
            raise CodecError("gradiveq: energy needs sample=2 or more: the last sample step agrees on d")

    def _check_slice(self) -> None:
        if self.slice == ROW:
            if not self.ratio >= 1:
                raise CodecError(f"gradiveq: ratio={self.ratio:g} must be at least 1")
            return
        if self.slice < 1:
            raise CodecError(f"gradiveq: slice={self.slice} must be at least 1")
        if not 1 <= self.ratio <= self.slice:
            raise CodecError(
                f"gradiveq: ratio={self.ratio:g} must be between 1 and slice={self.slice}: d = slice / ratio "
                "numbers stand for the elements of a slice"
            )
        if self.slice / self.ratio != int(self.slice / self.ratio):
            raise CodecError(f"gradiveq: ratio={self.ratio:g} must divide slice={self.slice} without a rest")

    @property
    def sampled(self) -> int:
        """Steps of a cycle whose means can be samples."""
        return self.sample - int(self.energy != _OFF)

    def slices(self, spec: Spec) -> Slices:
        """A tensor cut as it was asked for."""
        return Slices(spec, row_slice(spec) if self.slice == ROW else self.slice)

    def width(self, slices: Slices) -> int:
        """d, or with `energy` the most it can be."""
        return int(slices.length / self.ratio)

    def width_of(self, slices: Slices, known: Mapping[str, Tensor]) -> int:
        """Numbers that a slice of a tensor becomes: what was learnt of it, else what was asked for."""
        return int(known["width"]) if "width" in known else self.width(slices)

    def phase(self, step: int, known: Mapping[str, Tensor] = NOTHING) -> str:
        if step < self.start:
            return START
        at = (step - self.start) % (self.sample + self.compress)
        if at < self.sample:
            return CHOOSE if self.energy != _OFF and at == self.sample - 1 else SAMPLE
        kind = REFRESH if at == self.sample else PROJECT
        asked = f"row/{self.ratio:g}" if self.slice == ROW else str(int(self.slice / self.ratio))
        return f"{kind} {int(known['width']) if 'width' in known else asked}"

    def refuses(self, spec: Spec) -> str | None:
        slices = self.slices(spec)
        if self.layers == "conv" and len(spec.shape) == 2:
            return "fully connected (layers=all compresses it)"
        if self.slice == ROW and slices.length < self.ratio:
            return f"rows, or equal pieces of them, of {slices.length} elements are shorter than the ratio"
        if slices.count == 0:
            return f"shorter than a slice of {self.slice}"
        width = self.width(slices)
        saved = self.compress * slices.count * (slices.length - width)
        if self.ratio > 1 and saved <= width * slices.length:
            return "its basis costs more than it saves"
        return None

    def bind(self, layout: Layout, context: Context, phase: str, learned: Learned) -> BoundStage:
        kinds: dict[str, Callable[[GradiVeQ, Layout, Context, Learned], BoundStage]]
        kinds = {SAMPLE: BoundSample, CHOOSE: BoundChoose, REFRESH: BoundRefresh, PROJECT: BoundProject}
        if phase == START:
            return BoundIdentity(layout)
        return kinds[phase.split()[0]](self, layout, context, learned)


class _Learner:
    """What all phases share: the tensors' slices and what is remembered of them."""

    def __init__(self, stage: GradiVeQ, layout: Layout, context: Context, learned: Learned) -> None:
        self.stage, self.context, self.learned = stage, context, learned
        self.slices = [stage.slices(spec) for spec in layout.specs]

    def known(self, slices: Slices) -> dict[str, Tensor]:
        return self.learned.setdefault(slices.spec.name, {})

    def owns(self, slices: Slices) -> bool:
        return owner(slices.spec.name, self.context.world) == self.context.rank

    def moments(self, slices: Slices) -> list[Moments]:
        orders = orders_of(slices, self.stage.order)
        kernels = self.context.kernels.products
        return [Moments(self.known(slices), order, slices.length, kernels) for order in orders]

    def restart(self, slices: Slices) -> None:
        for moments in self.moments(slices):
            moments.start(self.owns(slices), self.context.device)
        self.known(slices).update(_seen=scalar(0), _used=scalar(0))

    def components(self, slices: Slices) -> Components:
        """Of the order that drops less."""
        found = [moments.components() for moments in self.moments(slices)]
        width = self.stage.width(slices)
        return min(found, key=lambda components: components.dropped(width))


class BoundSample(BoundIdentity):
    """The uncompressed phase: everything is sent, and owners take slices of the mean as samples."""

    def __init__(self, stage: GradiVeQ, layout: Layout, context: Context, learned: Learned) -> None:
        super().__init__(layout)
        self.learner = _Learner(stage, layout, context, learned)

    def learn(self, y: Tensor, x: Tensor, verdict: StepVerdict = FINITE) -> None:
        if not verdict.now():
            return
        for slices, piece in zip(self.learner.slices, self.layout.slices, strict=True):
            if self._counts(slices):
                self._take(slices, x[piece])

    def _counts(self, slices: Slices) -> bool:
        """Whether this mean is a sample: the first of a cycle carries what error feedback held back."""
        known, stage = self.learner.known(slices), self.learner.stage
        first = "_used" not in known
        if first or bool(known["_used"]):
            self.learner.restart(slices)
            return first or stage.sampled == 1
        return True

    def _take(self, slices: Slices, x: Tensor) -> None:
        stage, known = self.learner.stage, self.learner.known(slices)
        stride = max(1, min(stage.stride, slices.count // _FEW))
        seen = int(known["_seen"])
        if self.learner.owns(slices):
            for moments in self.learner.moments(slices):
                rows = slices.matrix(slices.ordered(x, moments.order))
                moments.add(rows[seen % stride :: stride], self.loss_scale)
        known["_seen"] = scalar(seen + 1)


class BoundChoose(BoundIdentity):
    """The last uncompressed step, where energy= decides on d: one number for each tensor, from its owner."""

    def __init__(self, stage: GradiVeQ, layout: Layout, context: Context, learned: Learned) -> None:
        super().__init__(layout)
        self.learner = _Learner(stage, layout, context, learned)
        self.num_summands = len(layout.specs)

    def summands(self, x: Tensor) -> Tensor:
        stage, offer = self.learner.stage, torch.zeros(self.num_summands, device=x.device)
        for index, slices in enumerate(self.learner.slices):
            if self.learner.owns(slices):
                offer[index] = self.learner.components(slices).width(stage.energy, stage.width(slices))
        return offer

    def prepare(self, shared: Tensor) -> None:
        for slices, width in zip(self.learner.slices, shared.tolist(), strict=True):
            self.learner.known(slices)["width"] = scalar(width)


class BoundProject(RangedStage):
    """The compressed phase: Y = (X - mu) U there, X = Y U^T + mu back, group of slices by group."""

    def __init__(self, stage: GradiVeQ, layout: Layout, context: Context, learned: Learned) -> None:
        self.layout, self.kernels = layout, context.kernels.products
        self.learner = _Learner(stage, layout, context, learned)
        self.captured: dict[str, Captured] = {}
        self.widths = [
            stage.width_of(slices, learned.get(slices.spec.name, NOTHING)) for slices in self.learner.slices
        ]
        self.out = Layout.packed(
            Spec(slices.spec.name, (slices.count * width + slices.tail,))
            for slices, width in zip(self.learner.slices, self.widths, strict=True)
        )

    def cut_points(self) -> list[int]:
        places: list[int] = []
        for slices, width, out in zip(self.learner.slices, self.widths, self.out.slices, strict=True):
            groups = slices.count if CHANNEL in orders_of(slices, self.learner.stage.order) else _GROUP
            places += range(out.start, out.start + slices.count * width, groups * width)
        return places

    def prepare(self, shared: Tensor) -> None:
        pass

    def forward_range(self, x: Tensor, y: Tensor, first: int, last: int) -> None:
        for part in self._cuts(first, last):
            known = self.learner.known(part.slices)
            basis, mean, start = known["basis"], known["mean"] * self.loss_scale, x.new_empty(1, part.width)
            ordered = part.slices.ordered(x[part.piece], _order(known))
            rows = part.slices.matrix(ordered)[part.first : part.last]
            self.kernels.product(mean.unsqueeze(0), basis, x.new_empty(0), start)
            self.kernels.product(rows, basis, start.neg_().squeeze(0), part.rows(y))
            part.tail_in(y).copy_(ordered[ordered.numel() - part.tail :])
            if self.measured:
                self._weigh(part, rows, mean, y)

    def inverse_range(self, y: Tensor, x: Tensor, first: int, last: int) -> None:
        for part in self._cuts(first, last):
            known, tensor = self.learner.known(part.slices), x[part.piece]
            order = _order(known)
            moved = order == CHANNEL
            target = torch.empty_like(tensor) if moved else tensor
            rows = part.slices.matrix(target)[part.first : part.last]
            self.kernels.product(part.rows(y), known["basis"].t(), known["mean"] * self.loss_scale, rows)
            target[target.numel() - part.tail :] = part.tail_in(y)
            if moved:
                part.slices.restore(target, order, tensor)

    def tallies(self) -> dict[str, dict[str, float]]:
        """The share of this rank's gradient, by energy, that lies in the basis: in the step measured last."""
        return {name: {KEPT: captured.share} for name, captured in self.captured.items()}

    def _weigh(self, part: Cut, rows: Tensor, mean: Tensor, y: Tensor) -> None:
        name = part.slices.spec.name
        before = self.captured.get(name, Captured()) if part.first else Captured()
        self.captured[name] = before.plus(Captured.of(rows, mean, part.rows(y), part.tail_in(y)))

    def _cuts(self, first: int, last: int) -> Iterator[Cut]:
        """What of each tensor lies in the numbers first..last, which were cut at `places`."""
        for index, (slices, width) in enumerate(zip(self.learner.slices, self.widths, strict=True)):
            out = self.out.slices[index]
            low, high = max(first, out.start), min(last, out.stop)
            if low < high:
                begin = (low - out.start) // width
                end = slices.count if high == out.stop else (high - out.start) // width
                yield Cut(slices, self.layout.slices[index], width, out.start - first, begin, end)


class BoundRefresh(BoundProject):
    """The first compressed step: owners send mean and basis of their tensors, then all use them."""

    def __init__(self, stage: GradiVeQ, layout: Layout, context: Context, learned: Learned) -> None:
        super().__init__(stage, layout, context, learned)
        lengths = [slices.length for slices in self.learner.slices]
        self.sizes = [
            length * (width + 1) + _FACTS for length, width in zip(lengths, self.widths, strict=True)
        ]
        self.num_summands = sum(self.sizes)

    def summands(self, x: Tensor) -> Tensor:
        offer = torch.zeros(self.num_summands, device=x.device)
        for slices, width, own in self._pieces(offer):
            if self.learner.owns(slices):
                found = self.learner.components(slices)
                facts = sent(torch.tensor([found.energy(width), found.order == CHANNEL]), x.device)
                own.copy_(torch.cat([found.vectors[:, :width].flatten(), found.mean, facts]))
        return offer

    def prepare(self, shared: Tensor) -> None:
        for slices, width, own in self._pieces(shared):
            length = slices.length
            basis, mean, facts = torch.split(own, [length * width, length, _FACTS])
            self.learner.known(slices).update(
                basis=basis.view(length, width).clone(),
                mean=mean.clone(),
                energy=scalar(facts[0].item()),
                channel=scalar(facts[1].item()),
                _used=scalar(1),
            )

    def _pieces(self, values: Tensor) -> Iterator[tuple[Slices, int, Tensor]]:
        """Every tensor's slices, its d, and its piece of what is offered or shared."""
        return zip(self.learner.slices, self.widths, torch.split(values, self.sizes), strict=True)


def _order(known: Mapping[str, Tensor]) -> str:
    return CHANNEL if bool(known["channel"]) else MEMORY
