"""Diminish: the dropped part follows the learning rate, as the convergence theorem asks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from thinwire.controls.base import Control, Seen, Strength
from thinwire.errors import CodecError, PlanError
from thinwire.options import option, show_number_or_off

GRID = 32  # shares are multiples of 1/32, so that plans stay few


def read_auto(text: str) -> float:
    return math.inf if text == "auto" else float(text)


def show_auto(value: float) -> str:
    return "auto" if math.isinf(value) else show_number_or_off(value)


@dataclass(frozen=True)
class Followed(Strength):
    """The share, and the highest learning rate seen so far."""

    highest: float = 0.0


@dataclass(frozen=True)
class Diminish(Control[Followed]):
    """theta_t <= L * eta_t, eta_t the learning rate that observe(lr=) tells.

    Why: let f be L-smooth and let a codec drop at most the part th^2 of the energy,
    |v - Q(v)|^2 <= th^2 |v|^2. Top-k and fft drop the part theta of the numbers, the smallest ones, so
    th^2 = theta. Then for L eta <= 1/4

        E f(x_(t+1)) <= f - eta (1/2 - th^2/2 - L eta/2) |grad f|^2 + (eta th^2/2 + L eta^2/2) sigma^2

    and with th^2 <= L eta the mean of |grad f|^2 is at most 4 (f_0 - f*) / (eta T) + 4 L eta sigma^2: the
    rate of SGD. A constant th leaves a floor of th^2 sigma^2 / (1 - th^2) in the bound as eta goes to 0.

    L=auto takes theta / (highest learning rate so far): the codec is as strong as it was asked for while the
    learning rate is at its highest, and then falls with it. Shares are rounded down to multiples of 1/32.

    >>> Diminish().decide(Followed(highest=0.4), Seen(lr=0.1), 7, None)[0]
    Followed(share=0.25, highest=0.4)
    """

    needs = "lr"

    L: float = option(math.inf, read_auto, 'a positive number, or "auto"', show_auto)

    def __post_init__(self) -> None:
        if not self.L > 0:
            raise CodecError(f"diminish: L={self.L:g} must be positive, or auto")

    def check(self, theta: float | None) -> None:
        if theta is None and not math.isinf(self.L):
            raise PlanError(
                f"diminish: L={self.L:g} needs a codec that drops the same part of all tensors, such "
                "as topk or fft: use L=auto, then the strength follows the learning rate alone"
            )

    def begin(self, theta: float | None) -> Followed:
        return Followed()

    def decide(self, state: Followed, seen: Seen, step: int, theta: float | None) -> tuple[Followed, str]:
        if seen.lr is None:
            return state, ""
        highest = max(state.highest, seen.lr)
        return Followed(self._share(seen.lr, highest, theta), highest), f"learning rate {seen.lr:g}"

    def _share(self, lr: float, highest: float, theta: float | None) -> float:
        if math.isinf(self.L):
            share = lr / highest if highest > 0 else 1.0
        else:
            share = self.L * lr / theta if theta else 1.0
        return max(0.0, min(1.0, math.floor(share * GRID) / GRID))
