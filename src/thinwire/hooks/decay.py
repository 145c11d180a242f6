"""Momentum on weight decay, for tensors whose gradients get their momentum from a memory (dgc)."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from thinwire.errors import PlanError
from thinwire.memories.momentum import MomentumOptions

KEY = "decay_momentum"  # in the optimizer's state, so that optimizer.state_dict() saves it


class DecayMomentum:
    """Momentum SGD with decay l is b = m b + (g + l w); w = w - lr b. By linearity b is a sum of two,

        b_g = m b_g + g     which the memory makes, and which is sent
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
        """Decay of these parameters gets the momentum of their memory; options by id, of some of them."""
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
