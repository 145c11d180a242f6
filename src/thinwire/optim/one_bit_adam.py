"""1-bit Adam: after a start with exact gradients the variance is frozen, and momentum travels by signs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.groups.torch import ProcessGroup
from thinwire.optim.exchanging import BETAS, ExchangingAdam, refuse_codec


class OneBitAdam(ExchangingAdam):
    """Adam whose variance is frozen after `freeze_step` steps; from then on momentum travels by signs.

    Before: m = b1 m + (1 - b1) g, v = b2 v + (1 - b2) g^2 with the mean gradient g of all ranks.
    After:  m_i = b1 m + (1 - b1) g_i on every rank; m = their mean by signs, with error feedback.
    Always: p -= lr (m / (sqrt(v) + eps) + weight_decay p).

    No bias is corrected, as in the paper. 15 to 25 % of the steps are usual for `freeze_step`.
    Tang et al., "1-bit Adam: Communication Efficient Large-Scale Training with Adam's Convergence Speed",
    ICML 2021.

    >>> optimizer = OneBitAdam(ddp_model, lr=1e-3, freeze_step=1000)                  # doctest: +SKIP
    >>> loss.backward(); optimizer.step(); optimizer.zero_grad()                      # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        freeze_step: int,
        betas: tuple[float, float] = BETAS,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        params: Iterable[dict[str, Any]] | None = None,
        process_group: ProcessGroup | None = None,
        seed: int = 0,
        group: Group | None = None,
        codec: None = None,
    ) -> None:
        refuse_codec(codec, "OneBitAdam")
        if freeze_step < 1:
            raise PlanError(
                f"OneBitAdam: freeze_step={freeze_step} must be at least 1: the variance comes from the "
                "steps before it, usually 15 to 25 % of a run"
            )
        self.freeze_step = freeze_step
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(model, params, options, process_group, seed, group)

    @property
    def frozen(self) -> bool:
        """Whether the next step travels by signs."""
        return self.num_steps >= self.freeze_step

    def _update(self, gradient: Tensor) -> None:
        if not self.frozen and not self._exact_mean(gradient):
            return
        m = self.m.clone()
        for part in self._slices():
            b1, b2 = part.options["betas"]
            g = gradient[part.where]
            m[part.where].mul_(b1).add_(g, alpha=1 - b1)
            if not self.frozen:
                self.v[part.where].mul_(b2).addcmul_(g, g, value=1 - b2)
        if self.frozen and not self._mean_by_signs(m):
            return
        self.m.copy_(m)
        for part in self._slices():
            part.parameter.add_(self._direction(part).view_as(part.parameter), alpha=-part.options["lr"])
