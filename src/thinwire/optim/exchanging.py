"""What optimizers share that exchange by themselves: flat buffers, an exact mean, and one by signs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from thinwire.clock import COMPARE, CONNECT
from thinwire.devices import is_finite
from thinwire.errors import PlanError, StateError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.packing import opened, sealed
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.base import Group
from thinwire.groups.torch import ProcessGroup, TorchGroup
from thinwire.hooks.ddp import leave_gradients_alone
from thinwire.hooks.failures import explain
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy, parameter_names
from thinwire.tensors import Layout

ONE_BIT = "sign:values=rms,block=layer"
MEAN, SIGNS = "mean", "signs"
BETAS = (0.9, 0.999)
EXCHANGE = "exchange"  # in a state: what was held back, and the step


@dataclass(frozen=True)
class Slice:
    """A parameter with its elements of the flat buffers, and the options of its group."""

    parameter: nn.Parameter
    where: slice
    options: dict[str, Any]


class ExchangingAdam(torch.optim.Optimizer):
    """What both have in common: flat buffers, an exact exchange, and one by signs with two residuals.

    By signs, tensor by tensor, with n the elements of an owner's share and d_i, D what was held back:

    1. u = x_i + d_i; c_i = |u|_2 / sqrt(n) sign(u); d_i = u - c_i        every rank sends c_i to owners
    2. w = mean_i c_i + D; c = |w|_2 / sqrt(n) sign(w); D = w - c         owners send c to everybody

    That is route "sharded" of codec "sign" (docs/reference/codecs.md). The gradients must not be exchanged by
    anybody else: of a DDP model its all-reduce is switched off. Parameters must have the same bits on all
    ranks, as DDP leaves them. A step whose mean is not finite is skipped, on all ranks alike.
    """

    local = False  # whether ranks step by themselves now and then: u, and the parameters where they met last

    def __init__(
        self,
        model: nn.Module,
        params: Iterable[dict[str, Any]] | None,
        options: dict[str, Any],
        process_group: ProcessGroup | None,
        seed: int,
        group: Group | None,
    ) -> None:
        module = model.module if isinstance(model, DistributedDataParallel) else model
        _refuse(module, options)
        groups = list(params) if params is not None else [p for p in module.parameters() if p.requires_grad]
        super().__init__(groups, options)
        names, listed = parameter_names(module), list(self._listed())
        _refuse_strangers(listed, names)
        self.num_steps, self._names = 0, [names[id(p)] for p, _ in listed]
        specs = {spec.name: spec for spec in Model.of(module).specs}
        self._layout = Layout.packed(specs[name] for name in self._names)
        if isinstance(model, DistributedDataParallel):
            leave_gradients_alone(model)
        self._group = group or TorchGroup(process_group)
        self._engines = self._connected(seed)
        device = listed[0][0].device
        self.m, self.v, self.u, self.met = (
            torch.zeros(self._layout.numel if used else 0, device=device)
            for used in (True, True, self.local, self.local)
        )
        self._show()

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Exchanges and updates; all ranks call it equally often."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._update(self._gradients())
        self.num_steps += 1
        return loss

    @property
    def sent_bytes(self) -> int:
        """What this rank has sent in all steps so far."""
        return sum(engine.group.step_bytes for engine in self._engines.values())

    @property
    def dense_bytes(self) -> int:
        """What it would have sent by a ring all-reduce of every gradient."""
        return self.num_steps * self._engines[MEAN].plan.dense_bytes

    def state_dict(self, *, gather: bool = False) -> dict[str, Any]:
        """As torch's, with what this rank holds back; `gather` (collective): with what all ranks hold.

        Momentum and variance are the same on all ranks, but in 0/1 Adam's local steps: save behind an
        exchange to go on with another number of ranks.
        """
        state = super().state_dict()
        take = gathered_state if gather else local_state
        held = {name: sealed(take(engine), self._group.rank) for name, engine in self._engines.items()}
        return {**state, EXCHANGE: {"kind": type(self).__name__, "counters": self._counters(), **held}}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Goes on where a state was taken, with the same bits; refuses that of another optimizer."""
        held = state_dict.get(EXCHANGE, {})
        if held.get("kind") != type(self).__name__:
            raise StateError(
                f"the state is of {held.get('kind', 'another optimizer')}, this is {type(self).__name__}: "
                "pass what its own state_dict() returned"
            )
        for name, engine in self._engines.items():
            load_state(engine, opened(held[name], self._group.rank))
        super().load_state_dict({key: value for key, value in state_dict.items() if key != EXCHANGE})
        self._count(held["counters"])
        for part in self._slices():
            for name, flat in self._flats().items():
                flat[part.where] = self.state[part.parameter][name].flatten()
        self._show()

    def close(self) -> None:
        """Gives up the connections; call it after the last step."""
        self._group.close()

    @abstractmethod
    def _update(self, gradient: Tensor) -> None:
        """One step, from this rank's own gradient."""

    def _counters(self) -> dict[str, float]:
        return {"steps": self.num_steps}

    def _count(self, counters: dict[str, float]) -> None:
        self.num_steps = int(counters["steps"])

    def _exact_mean(self, x: Tensor) -> bool:
        return self._exchanged(MEAN, x)

    def _mean_by_signs(self, x: Tensor) -> bool:
        """As `_mean`; where v is 0 no gradient ever came, and a sign would be nothing but noise."""
        finite = self._exchanged(SIGNS, x)
        x.masked_fill_(self.v == 0, 0.0)
        return finite

    def _exchanged(self, way: str, x: Tensor) -> bool:
        """x becomes its mean over all ranks; False if that is not finite."""
        engine = self._engines[way]
        try:
            engine.exchange(Bucket(x, self._layout))
        except Exception as error:
            raise explain(error, engine.clock.current, self._group) from error
        finite = is_finite(x)
        engine.end_step()
        return finite

    def _direction(self, part: Slice) -> Tensor:
        """m / (sqrt(v) + eps) + wd p, of one parameter."""
        scaled = self.m[part.where] / self._spread(part)
        return scaled.add_(part.parameter.flatten(), alpha=part.options["weight_decay"])

    def _spread(self, part: Slice) -> Tensor:
        return self.v[part.where].sqrt().add_(part.options["eps"])

    def _gradients(self) -> Tensor:
        return torch.cat([_gradient(p).flatten() for p, _ in self._listed()])

    def _listed(self) -> Iterator[tuple[nn.Parameter, dict[str, Any]]]:
        return ((p, group) for group in self.param_groups for p in group["params"])

    def _slices(self) -> Iterator[Slice]:
        for (parameter, options), where in zip(self._listed(), self._layout.slices, strict=True):
            yield Slice(parameter, where, options)

    def _flats(self) -> dict[str, Tensor]:
        flats = {"exp_avg": self.m, "exp_avg_sq": self.v}
        return {**flats, "local_update": self.u, "met": self.met} if self.local else flats

    def _show(self) -> None:
        """Torch's own state is views of the flat buffers: `state_dict` saves them."""
        for part in self._slices():
            for name, flat in self._flats().items():
                self.state[part.parameter][name] = flat[part.where].view_as(part.parameter)

    def _connected(self, seed: int) -> dict[str, Engine]:
        stage = CONNECT
        try:
            self._group.connect()
            stage = COMPARE
            model, device = Model(self._layout.specs), next(self._listed())[0].device
            policies = {MEAN: Policy.of("dense"), SIGNS: Policy.of(ONE_BIT, keep_dense=())}
            return {
                name: Engine(
                    Plan.of(policy, model, self._group.size, route="sharded"),
                    self._group,
                    device,
                    seed,
                    pick(device),
                    error_every=0,
                )
                for name, policy in policies.items()
            }
        except Exception as error:
            raise explain(error, stage, self._group) from error


def _gradient(parameter: nn.Parameter) -> Tensor:
    return torch.zeros_like(parameter) if parameter.grad is None else parameter.grad


def refuse_codec(codec: object, name: str) -> None:
    if codec is not None:
        raise PlanError(
            f"{name} sends signs, and has no other codec: leave out codec=, or take torch.optim.AdamW with "
            f"tw.compress(model, {codec!r})"
        )


def _refuse(module: nn.Module, options: dict[str, Any]) -> None:
    for name in ("lr", "eps", "weight_decay"):
        if not options[name] >= 0:
            raise PlanError(f"{name}={options[name]} must be at least 0")
    if not all(0 <= beta < 1 for beta in options["betas"]):
        raise PlanError(f"betas={options['betas']} must be from 0 to less than 1")
    for name, parameter in module.named_parameters():
        if parameter.requires_grad and parameter.dtype != torch.float32:
            raise PlanError(
                f"{name} is {parameter.dtype}: momentum travels as float32; keep parameters in float32 and "
                "use torch.autocast"
            )


def _refuse_strangers(listed: list[tuple[nn.Parameter, dict[str, Any]]], names: dict[int, str]) -> None:
    if not listed:
        raise PlanError("the model has no trainable parameters: there is nothing to update")
    if any(id(parameter) not in names for parameter, _ in listed):
        raise PlanError("params= has a parameter that is not the model's: pass groups of model.parameters()")
