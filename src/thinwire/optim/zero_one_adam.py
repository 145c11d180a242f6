"""0/1 Adam: ever fewer exact gradients, then local steps between exchanges by signs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.errors import PlanError
from thinwire.groups.base import Group
from thinwire.groups.torch import ProcessGroup
from thinwire.optim.exchanging import BETAS, SIGNS, ExchangingAdam, refuse_codec


class ZeroOneAdam(ExchangingAdam):
    """0/1 Adam: variance from ever fewer exact gradients, then local steps between exchanges by signs.

    Until step `var_freeze_step`, in steps that I_v divides: g = the mean gradient, m = b1 m + (1 - b1) g,
    v = b2 v + (1 - b2) g^2; in the others g = the mean by signs, and v stays. I_v begins at 1 and doubles
    after every `var_update_scaler` exact steps. p -= lr U with U = m / (sqrt(v) + eps) + weight_decay p.

    After: every rank steps by itself, m_i = b1 m_i + (1 - b1) g_i, p_i -= lr U_i, u_i -= lr U_i. In steps
    that I_l divides, p_i -= u_i (all are equal again), u = the mean by signs of u_i (sqrt(v) + eps),
    m = -u / L with L the sum of learning rates since the last such step, p += u / (sqrt(v) + eps), u_i = 0.
    I_l begins at 1 and doubles every `local_step_scaler` steps, up to `local_step_clipper`.

    Options are named as DeepSpeed named them, which had both optimizers until 2026.
    Lu et al., "Maximizing Communication Efficiency for Large-scale Training via 0/1 Adam", ICLR 2023.
    """

    local = True

    def __init__(
        self,
        model: nn.Module,
        lr: float,
        var_freeze_step: int,
        betas: tuple[float, float] = BETAS,
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        *,
        var_update_scaler: int = 16,
        local_step_scaler: int = 32678,
        local_step_clipper: int = 16,
        params: Iterable[dict[str, Any]] | None = None,
        process_group: ProcessGroup | None = None,
        seed: int = 0,
        group: Group | None = None,
        codec: None = None,
    ) -> None:
        refuse_codec(codec, "ZeroOneAdam")
        counts = {
            "var_freeze_step": var_freeze_step,
            "var_update_scaler": var_update_scaler,
            "local_step_scaler": local_step_scaler,
            "local_step_clipper": local_step_clipper,
        }
        for name, value in counts.items():
            if value < 1:
                raise PlanError(f"ZeroOneAdam: {name}={value} must be a number of steps, at least 1")
        self.counts = counts
        self.var_interval, self.var_updates = 1, 0
        self.local_interval, self.local_steps_taken = 1, 0
        self.rates: list[float] = []  # of the local steps since the last exchange, summed up: by group
        options = {"lr": lr, "betas": tuple(betas), "eps": eps, "weight_decay": weight_decay}
        super().__init__(model, params, options, process_group, seed, group)
        self.rates = [0.0] * len(self.param_groups)

    @property
    def frozen(self) -> bool:
        """Whether the variance stays and ranks step by themselves."""
        return self.num_steps >= self.counts["var_freeze_step"]

    def _update(self, gradient: Tensor) -> None:
        number = self.num_steps + 1
        if self.frozen:
            self._local_step(gradient)
            if number % self.local_interval == 0:
                self._meet()
            self.local_steps_taken += 1
            if self.local_steps_taken == self.counts["local_step_scaler"]:
                self.local_steps_taken = 0
                self.local_interval = min(self.counts["local_step_clipper"], 2 * self.local_interval)
            return
        exact = number % self.var_interval == 0
        if self._exact_mean(gradient) if exact else self._mean_by_signs(gradient):
            self._shared_step(gradient, exact)
        self.var_updates += exact
        if self.var_updates == self.counts["var_update_scaler"]:
            self.var_updates, self.var_interval = 0, 2 * self.var_interval

    def _shared_step(self, gradient: Tensor, exact: bool) -> None:
        for part in self._slices():
            b1, b2 = part.options["betas"]
            g = gradient[part.where]
            self.m[part.where].mul_(b1).add_(g, alpha=1 - b1)
            if exact:
                self.v[part.where].mul_(b2).addcmul_(g, g, value=1 - b2)
            part.parameter.add_(self._direction(part).view_as(part.parameter), alpha=-part.options["lr"])

    def _local_step(self, gradient: Tensor) -> None:
        if self.num_steps == self.counts["var_freeze_step"]:
            self._forget_residuals()
        for part in self._slices():
            lr, b1 = part.options["lr"], part.options["betas"][0]
            if not any(self.rates):  # where all ranks met: p - u would not have the same bits on all of them
                self.met[part.where] = part.parameter.flatten()
            self.m[part.where].mul_(b1).add_(gradient[part.where], alpha=1 - b1)
            direction = self._direction(part)
            part.parameter.add_(direction.view_as(part.parameter), alpha=-lr)
            self.u[part.where].add_(direction, alpha=-lr)
        for number, group in enumerate(self.param_groups):
            self.rates[number] += group["lr"]

    def _meet(self) -> None:
        """Takes the local steps back, all of them, and makes their mean by signs instead."""
        sent = torch.empty_like(self.u)
        for part in self._slices():
            part.parameter.copy_(self.met[part.where].view_as(part.parameter))
            sent[part.where] = self.u[part.where] * self._spread(part)
        if self._mean_by_signs(sent):
            rates = {id(group): rate for group, rate in zip(self.param_groups, self.rates, strict=True)}
            for part in self._slices():
                if rates[id(part.options)]:
                    torch.div(sent[part.where], -rates[id(part.options)], out=self.m[part.where])
                moved = sent[part.where] / self._spread(part)
                part.parameter.add_(moved.view_as(part.parameter))
        self.u.zero_()
        self.rates = [0.0] * len(self.param_groups)

    def _forget_residuals(self) -> None:
        """They were gradients; what travels from here on are updates."""
        for feedback in self._engines[SIGNS].feedbacks.values():
            feedback.load({})

    def _counters(self) -> dict[str, float]:
        counted = {"var_interval": self.var_interval, "var_updates": self.var_updates}
        local = {"local_interval": self.local_interval, "local_steps_taken": self.local_steps_taken}
        return {
            **super()._counters(),
            **counted,
            **local,
            **{f"rates {i}": r for i, r in enumerate(self.rates)},
        }

    def _count(self, counters: dict[str, float]) -> None:
        super()._count(counters)
        self.var_interval, self.var_updates = int(counters["var_interval"]), int(counters["var_updates"])
        self.local_interval, self.local_steps_taken = (
            int(counters["local_interval"]),
            int(counters["local_steps_taken"]),
        )
        self.rates = [counters[f"rates {number}"] for number in range(len(self.param_groups))]
