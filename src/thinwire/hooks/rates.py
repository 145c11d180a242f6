"""The learning rates of an optimizer's parameters, by name, as they are now."""

from __future__ import annotations

import weakref
from collections.abc import Mapping

from torch.optim import Optimizer

from thinwire.errors import PlanError
from thinwire.memories.base import RATES_WAY_OUT


class LearningRates:
    """Looks into an optimizer that somebody else keeps alive."""

    def __init__(self, optimizer: Optimizer, names: Mapping[int, str]) -> None:
        self._optimizer, self._names = weakref.ref(optimizer), names

    def now(self) -> dict[str, float]:
        """What the next `optimizer.step()` will use."""
        optimizer = self._optimizer()
        if optimizer is None:
            raise PlanError(f"the optimizer whose learning rates lr=on goes by is gone: {RATES_WAY_OUT}")
        return {
            self._names[id(parameter)]: float(group["lr"])
            for group in optimizer.param_groups
            for parameter in group["params"]
            if id(parameter) in self._names
        }


def refuse_unknown_rates() -> None:
    raise PlanError(
        f"a memory with lr=on goes by the learning rate, and no optimizer is known: {RATES_WAY_OUT}, "
        "once, before training"
    )
