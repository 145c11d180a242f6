"""What a compressor knows of the optimizer: who applies momentum, how weights decay, the learning rates."""

from __future__ import annotations

import warnings
import weakref
from collections.abc import Collection, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from thinwire.auto import qualities
from thinwire.errors import PlanError
from thinwire.feedback.base import RATES_WAY_OUT
from thinwire.feedback.momentum import MomentumOptions
from thinwire.feedback.table import feedback_name, feedback_options
from thinwire.plans.plan import Plan


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
        f"error feedback with lr=on needs the learning rate, and no optimizer is known: {RATES_WAY_OUT}, "
        "once, before training"
    )


WAY_OUT = (
    "use torch.optim.SGD(compressor.param_groups(model.parameters(), momentum=0.9), ...), which gives "
    'momentum to the other tensors only, or feedback="residual"'
)


def corrected(plan: Plan) -> dict[str, MomentumOptions]:
    """The tensors whose error feedback applies momentum, and how it does."""
    return {
        entry.spec.name: feedback_options(entry.feedback)
        for entry in plan.entries
        if feedback_name(entry.feedback) == "momentum"
    }


def refuse_second_momentum(optimizer: Optimizer, names: Mapping[int, str], applied: Collection[str]) -> None:
    """Raises if the optimizer would apply momentum to a tensor whose error feedback applies it already."""
    for group in optimizer.param_groups:
        what = _momentum(group)
        twice = [names[id(p)] for p in group["params"] if names.get(id(p)) in applied]
        if what and twice:
            more = f" and {len(twice) - 1} more" if len(twice) > 1 else ""
            raise PlanError(
                f'momentum would be applied twice to {twice[0]}{more}: feedback "momentum" applies it before '
                f"selecting, and {type(optimizer).__name__} has {what}: {WAY_OUT}"
            )


def split_groups(
    parameters: Iterable[Tensor], names: Mapping[int, str], applied: Collection[str], momentum: float
) -> list[dict[str, Any]]:
    """Parameter groups for SGD: momentum for all tensors but those whose error feedback applies it."""
    everything = list(parameters)
    here = [p for p in everything if names.get(id(p)) in applied]
    elsewhere = [p for p in everything if names.get(id(p)) not in applied]
    groups = [{"params": elsewhere, "momentum": momentum}, {"params": here, "momentum": 0.0}]
    return [group for group in groups if group["params"]]


def warn_unchecked() -> None:
    warnings.warn(
        "the optimizer must not apply momentum to tensors whose error feedback does (dgc), and nobody looked "
        "whether it does: call compressor.check_optimizer(optimizer) once, before training",
        stacklevel=2,
    )


def _momentum(group: Mapping[str, Any]) -> str | None:
    """The option by which an optimizer averages gradients over steps, if it does."""
    if "betas" in group:
        return f"betas={group['betas']}"
    return f"momentum={group['momentum']:g}" if group.get("momentum") else None


KEY = "decay_momentum"  # in the optimizer's state, so that optimizer.state_dict() saves it


class DecayMomentum:
    """Momentum SGD with decay l is b = m b + (g + l w); w = w - lr b. By linearity b is a sum of two,

        b_g = m b_g + g     which error feedback makes, and which is sent
        c   = m c + l w     which has the same bits on every rank, because w has: nothing needs to be sent

    SGD without momentum adds l w to the gradient by itself. Before every step of an optimizer that is an SGD,
    what is missing is added for the watched tensors: m c of the step before, or, in Nesterov's form, m c of
    this one. Without this decay would be 1 / (1 - m) times too weak.
    """

    def __init__(self) -> None:
        self._watched: dict[int, tuple[weakref.ref[Tensor], MomentumOptions]] = {}
        hook = weakref.WeakMethod(self.before_step)

        def call(optimizer: Optimizer, args: tuple[Any, ...], kwargs: dict[Any, Any]) -> None:
            method = hook()
            if method is not None:
                method(optimizer, args, kwargs)

        handle = register_optimizer_step_pre_hook(call)
        self.remove = weakref.finalize(self, handle.remove)

    def watch(self, parameters: Iterable[Tensor], options: Mapping[int, MomentumOptions]) -> None:
        """Decay of these parameters gets the momentum of their feedback; options by id, of some of them."""
        for p in parameters:
            if id(p) in options:
                self._watched[id(p)] = weakref.ref(p), options[id(p)]

    @torch.no_grad()
    def before_step(self, optimizer: Optimizer, args: tuple[Any, ...], kwargs: Mapping[Any, Any]) -> None:
        if not isinstance(optimizer, SGD):
            return
        for group in optimizer.param_groups:
            for p in group["params"]:
                options = self._options_of(p)
                if options is None or p.grad is None:
                    continue
                state = optimizer.state[p]
                if group["weight_decay"] or KEY in state:
                    _refuse(group, len(args) > 1 or kwargs.get("closure") is not None)
                    self._add(p, state, group, options)

    def _options_of(self, p: Tensor) -> MomentumOptions | None:
        reference, options = self._watched.get(id(p), (None, None))
        return options if reference is not None and reference() is p else None

    def _add(
        self, p: Tensor, state: dict[str, Any], group: Mapping[str, Any], options: MomentumOptions
    ) -> None:
        assert p.grad is not None
        c = state.setdefault(KEY, torch.zeros_like(p))
        alpha = -options.factor if group["maximize"] else options.factor  # SGD turns the gradient around then
        if not options.nesterov:
            p.grad.add_(c, alpha=alpha)
        c.mul_(options.factor).add_(p, alpha=group["weight_decay"])
        if options.nesterov:
            p.grad.add_(c, alpha=alpha)


def _refuse(group: Mapping[str, Any], closure: bool) -> None:
    if closure:
        raise PlanError(
            "weight decay under dgc needs its gradients before step(): call step() without a closure"
        )
    if group.get("fused"):
        raise PlanError(
            "weight decay under dgc needs unscaled gradients: make the optimizer without fused=True"
        )


def family_of(optimizer: Optimizer) -> str | None:
    """The family in which accuracy was studied; None: it was not, or the class hides what is inside.

    >>> family_of(torch.optim.AdamW([torch.zeros(1)])), family_of(torch.optim.Rprop([torch.zeros(1)]))
    ('Adam', None)
    """
    if isinstance(optimizer, torch.optim.SGD):
        return qualities.SGD
    return qualities.ADAM if isinstance(optimizer, torch.optim.Adam | torch.optim.AdamW) else None


def quality_by(optimizer: Optimizer | None) -> tuple[str, str]:
    """The quality of an auto run that was given none, and a sentence about it if there is an optimizer.

    >>> quality_by(torch.optim.SGD([torch.zeros(1)]))
    ('SGD', 'quality "SGD": its codecs keep their accuracy under SGD (docs/background/accuracy.md)')
    """
    if optimizer is None:
        return qualities.DEFAULT, ""
    family = family_of(optimizer)
    if family is None:
        name = type(optimizer).__name__
        return qualities.DEFAULT, f'quality "{qualities.DEFAULT}": what codecs do to {name} was not studied'
    return (
        family,
        f'quality "{family}": its codecs keep their accuracy under {family} (docs/background/accuracy.md)',
    )


class KnownOptimizer:
    """Nothing at first; `check` or `param_groups` tell it more."""

    def __init__(self, names: Mapping[int, str]) -> None:
        self._names = names
        self._decay: DecayMomentum | None = None
        self._rates: LearningRates | None = None
        self.checked = False  # somebody looked whether the optimizer applies momentum again

    def check_own(self, optimizer: Optimizer, plan: Plan) -> None:
        """As `check`; raises too if the optimizer updates nothing of this model."""
        if not any(id(p) in self._names for group in optimizer.param_groups for p in group["params"]):
            raise PlanError(
                f"optimizer= ({type(optimizer).__name__}) updates no parameter of this model: pass the "
                "one that does, made with model.parameters()"
            )
        self.check(optimizer, plan)

    def check(self, optimizer: Optimizer, plan: Plan) -> None:
        """Raises if momentum would be applied twice; from here on its learning rates are known."""
        refuse_second_momentum(optimizer, self._names, corrected(plan))
        self._rates = LearningRates(optimizer, self._names)
        self._settle((p for group in optimizer.param_groups for p in group["params"]), plan)

    def param_groups(self, parameters: Iterable[Tensor], plan: Plan, momentum: float) -> list[dict[str, Any]]:
        """Groups for SGD: no momentum where error feedback applies it."""
        everything = list(parameters)
        self._settle(everything, plan)
        return split_groups(everything, self._names, corrected(plan), momentum)

    def follow(self, other: KnownOptimizer) -> None:
        """Takes what another one knows: workers in one process have one optimizer."""
        self._rates, self.checked = other._rates, True

    def rates(self, plan: Plan) -> dict[str, float]:
        """The learning rates of this step, if error feedback needs them; warns once if nobody looked."""
        if not self.checked:
            self.checked = True
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
        self.checked = True
        by_name = corrected(plan)
        if by_name:
            self._decay = self._decay or DecayMomentum()
            options = {key: by_name[name] for key, name in self._names.items() if name in by_name}
            self._decay.watch(parameters, options)
