"""1-bit Adam and 0/1 Adam in plain float64, for all ranks at once: what the optimizers must equal."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from thinwire.codecs.two_phase import shares_of
from thinwire.tensors import Layout, Spec

Gradient = Callable[[int, int, Tensor], Tensor]  # step, rank and parameters, to a rank's gradient


def one_bit(x: Tensor) -> Tensor:
    """|x| / sqrt(n) sign(x)."""
    return torch.where(x >= 0, 1.0, -1.0) * (x.square().sum() / len(x)).sqrt()


class TwoPhases:
    """The mean by signs, share by share, with the residuals d_i of ranks and D of owners."""

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], world: int) -> None:
        layout = Layout.packed(Spec(name, shape) for name, shape in shapes.items())
        self.shares = [
            slice(share.offset, share.offset + share.spec.numel)
            for share in shares_of(layout.units(0), world)
        ]
        self.d = torch.zeros(world, layout.numel, dtype=torch.float64)
        self.D = torch.zeros(layout.numel, dtype=torch.float64)

    def __call__(self, xs: Tensor) -> Tensor:
        """(ranks, elements) to what everybody gets."""
        mean = torch.zeros_like(self.D)
        for share in self.shares:
            u = xs[:, share] + self.d[:, share]
            c = torch.stack([one_bit(row) for row in u])
            self.d[:, share] = u - c
            w = c.mean(0) + self.D[share]
            mean[share] = one_bit(w)
            self.D[share] = w - mean[share]
        return mean

    def forget(self) -> None:
        self.d.zero_()
        self.D.zero_()


class Reference:
    """Parameters of all ranks (ranks, elements), momentum of all ranks, one variance."""

    def __init__(self, p: Tensor, shapes: Mapping[str, tuple[int, ...]], world: int, wd: float) -> None:
        self.p = p.double().expand(world, -1).clone()
        self.m, self.v = torch.zeros_like(self.p), torch.zeros_like(self.p[0])
        self.signs, self.wd, self.b1, self.b2, self.eps = TwoPhases(shapes, world), wd, 0.9, 0.999, 1e-8

    @property
    def spread(self) -> Tensor:
        return self.v.sqrt() + self.eps

    def by_signs(self, xs: Tensor) -> Tensor:
        return torch.where(self.v == 0, 0.0, self.signs(xs))

    def move(self, lr: float) -> Tensor:
        step = lr * (self.m / self.spread + self.wd * self.p)
        self.p -= step
        return step


def one_bit_adam(ref: Reference, gradient: Gradient, steps: int, lr: float, freeze: int) -> Tensor:
    for step in range(steps):
        g = torch.stack([gradient(step, rank, p) for rank, p in enumerate(ref.p)])
        if step < freeze:
            mean = g.mean(0)
            ref.m = (ref.b1 * ref.m[0] + (1 - ref.b1) * mean).expand_as(ref.p).clone()
            ref.v = ref.b2 * ref.v + (1 - ref.b2) * mean**2
        else:
            ref.m = ref.by_signs(ref.b1 * ref.m + (1 - ref.b1) * g).expand_as(ref.p).clone()
        ref.move(lr)
    return ref.p


def zero_one_adam(
    ref: Reference, gradient: Gradient, steps: int, lr: float, freeze: int, scaler: int, local: int
) -> Tensor:
    interval, updates, meeting, counted = 1, 0, 1, 0
    u, rates = torch.zeros_like(ref.p), 0.0
    for number in range(1, steps + 1):
        g = torch.stack([gradient(number - 1, rank, p) for rank, p in enumerate(ref.p)])
        if number <= freeze:
            exact = number % interval == 0
            mean = g.mean(0) if exact else ref.by_signs(g)
            ref.m = ref.b1 * ref.m + (1 - ref.b1) * mean
            if exact:
                ref.v = ref.b2 * ref.v + (1 - ref.b2) * mean**2
                updates += 1
            ref.move(lr)
            if updates == scaler:
                updates, interval = 0, 2 * interval
            continue
        if number == freeze + 1:
            ref.signs.forget()
        ref.m = ref.b1 * ref.m + (1 - ref.b1) * g
        u -= ref.move(lr)
        rates += lr
        if number % meeting == 0:
            ref.p -= u
            sent = ref.by_signs(u * ref.spread)
            ref.m = (-sent / rates).expand_as(ref.p).clone()
            ref.p += sent / ref.spread
            u, rates = torch.zeros_like(u), 0.0
        counted += 1
        if counted == local:
            counted, meeting = 0, min(4, 2 * meeting)
    return ref.p
