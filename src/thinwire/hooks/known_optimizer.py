"""What a compressor knows of the optimizer: who applies momentum, how weights decay, the learning rates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from thinwire.auto.qualities import ADAM, DEFAULT, SGD, default_quality
from thinwire.errors import PlanError
from thinwire.hooks.decay import DecayMomentum
from thinwire.hooks.momentum import corrected, refuse_second_momentum, split_groups, warn_unchecked
from thinwire.hooks.rates import LearningRates, refuse_unknown_rates
from thinwire.plans.plan import Plan


def family_of(optimizer: Optimizer) -> str | None:
    """The family in which accuracy was studied; None: it was not, or the class hides what is inside.

    >>> family_of(torch.optim.AdamW([torch.zeros(1)])), family_of(torch.optim.Rprop([torch.zeros(1)]))
    ('Adam', None)
    """
    if isinstance(optimizer, torch.optim.SGD):
        return SGD
    return ADAM if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) else None


def quality_by(optimizer: Optimizer | None) -> tuple[str, str]:
    """The quality of an auto run that was given none, and a sentence about it if there is an optimizer.

    >>> quality_by(torch.optim.SGD([torch.zeros(1)]))
    ('balanced', 'quality "balanced": its codecs keep their accuracy under SGD (docs/choosing.md)')
    """
    if optimizer is None:
        return DEFAULT, ""
    family = family_of(optimizer)
    if family is None:
        name = type(optimizer).__name__
        return DEFAULT, f'quality "{DEFAULT}": what codecs do to {name} was not studied'
    quality = default_quality(family)
    return quality, f'quality "{quality}": its codecs keep their accuracy under {family} (docs/choosing.md)'


class KnownOptimizer:
    """Nothing at first; `check` or `param_groups` tell it more."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._decay: DecayMomentum | None = None
        self._rates: LearningRates | None = None
        self._settled = False  # somebody looked whether the optimizer applies momentum again

    def refuse_another(self, optimizer: Optimizer) -> None:
        """Raises if the optimizer updates nothing of this model."""
        if not any(id(p) in self._names for group in optimizer.param_groups for p in group["params"]):
            raise PlanError(
                f"optimizer= ({type(optimizer).__name__}) updates no parameter of this model: pass the "
                "one that does, made with model.parameters()"
            )

    def check(self, optimizer: Optimizer, plan: Plan) -> None:
        """Raises if momentum would be applied twice; from here on its learning rates are known."""
        refuse_second_momentum(optimizer, self._names, corrected(plan))
        self._rates = LearningRates(optimizer, self._names)
        self._settle((p for group in optimizer.param_groups for p in group["params"]), plan)

    def param_groups(self, parameters: Iterable[Tensor], plan: Plan, momentum: float) -> list[dict[str, Any]]:
        """Groups for SGD: no momentum where the memory applies it."""
        everything = list(parameters)
        self._settle(everything, plan)
        return split_groups(everything, self._names, corrected(plan), momentum)

    def follow(self, other: KnownOptimizer) -> None:
        """Takes what another one knows: workers in one process have one optimizer."""
        self._rates, self._settled = other._rates, True

    def rates(self, plan: Plan) -> dict[str, float]:
        """The learning rates of the step at hand, if a memory goes by them; warns once if nobody looked."""
        if not self._settled:
            self._settled = True
            if corrected(plan):
                warn_unchecked()
        if not plan.uses_rates:
            return {}
        if self._rates is None:
            refuse_unknown_rates()
        return {} if self._rates is None else self._rates.now()

    def forget(self) -> None:
        """Takes back what was put into the optimizer."""
        if self._decay is not None:
            self._decay.remove()

    def _settle(self, parameters: Iterable[Tensor], plan: Plan) -> None:
        """Somebody has seen to the momentum of these parameters: decay must have it as well."""
        self._settled = True
        by_name = corrected(plan)
        if by_name:
            self._decay = self._decay or DecayMomentum()
            options = {key: by_name[name] for key, name in self._names.items() if name in by_name}
            self._decay.watch(parameters, options)
