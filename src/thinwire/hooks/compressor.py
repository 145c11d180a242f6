"""A compressor: the exchanger of one DDP model's gradients, with its optimizer and what auto selects."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.auto.actions import GroupActions
from thinwire.auto.autotuner import Autotuner
from thinwire.auto.profiler import Profiler
from thinwire.deprecated import FormerAttribute
from thinwire.errors import PlanError
from thinwire.exchange.drift import DriftCheck, drift_check
from thinwire.groups.base import Group
from thinwire.hooks.exchanger import Exchanger
from thinwire.hooks.planner import NamedTensors, plans_of_auto
from thinwire.hooks.selector import AutoSelector, Safeguard
from thinwire.hooks.worker import call_measuring
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import Observation
from thinwire.tensors import Layout


@dataclass
class StepWatch:
    """Describes the exchange every so many steps; it does not keep the compressor."""

    compressor: Callable[[], Compressor | None]
    every: int
    say: Callable[[str], None]
    said: int = 0  # the step of the last line
    began_s: float = field(default_factory=time.perf_counter)

    def __call__(self) -> None:
        """Behind every backward pass."""
        compressor = self.compressor()
        steps = 0 if compressor is None else compressor.engine.statistics.steps
        if compressor is None or steps // self.every == self.said // self.every:
            return
        now_s, report = time.perf_counter(), compressor.report()
        took_ms = 1e3 * (now_s - self.began_s) / (steps - self.said)
        self.began_s, self.said = now_s, steps
        self.say(
            f"step {report.steps}: {report.codec}, {report.ratio:.1f}x fewer bytes "
            f"({report.bytes_per_step / 1e6:.3g} MB a step), {took_ms:.0f} ms a step"
        )


class Compressor(Exchanger):
    """What `tw.compress` returns: the running exchange of one model's gradients, its report and its state."""

    def __init__(
        self,
        policy: Policy,
        group: Group,
        device: torch.device,
        module: nn.Module | None,
        *,
        check_every: int | None = None,
        on_drift: str = "raise",
        quality: str | None = None,
        about_quality: str = "",
        optimizer: torch.optim.Optimizer | None = None,
        can_pass: bool = False,
        **options: Any,
    ) -> None:
        self.owner: Callable[[], nn.Module | None] = lambda: None  # the wrapper whose gradients these are
        self._of_model = module, optimizer, check_every, on_drift
        tensors = None if module is None else NamedTensors.of(module)
        super().__init__(policy, group, device, tensors, flat_first=quality is not None, **options)
        del self._of_model  # the model must not be kept
        if quality is not None and module is not None:
            self.queue.auto = self._selector(quality, module, can_pass, about_quality)

    def _checked(self, plan: Plan) -> DriftCheck:
        module, optimizer, check_every, on_drift = self._of_model
        if optimizer is not None:
            self._want_names("optimizer=")
            self._optimizer.check_own(optimizer, plan)
        return drift_check(self.group, module, check_every, on_drift)

    @property
    def auto(self) -> AutoSelector | None:
        """What selects the codec in an auto run; None where one was asked for by name."""
        return self.queue.auto

    @property
    def decided(self) -> bool:
        """Whether the codec is decided: always, but for the first steps of an auto run."""
        return self.auto is None or self.auto.decided

    def wait(self) -> None:
        """Waits for all queued exchanges and raises what ended them."""
        self.queue.worker.call(lambda: None)

    def observe(
        self,
        loss: float | Tensor | None = None,
        *,
        lr: float | None = None,
        epoch: float | None = None,
        reference: float | Tensor | None = None,
    ) -> None:
        """Tells the schedule how training goes: call it on every rank, equally often between two steps.

        The next exchange decides by it, on all ranks alike. `loss` is this rank's own loss or any metric, a
        number or a tensor of one element; `reference` is what it should be by now; `lr` and `epoch` must be
        equal on all ranks. Without a schedule it does nothing, so a script may keep the line.

        >>> compressor = compress(ddp_model, "topk:0.01", schedule="guard")           # doctest: +SKIP
        >>> loss.backward(); optimizer.step(); compressor.observe(loss)              # doctest: +SKIP
        """
        if self.engine.scheduler.listens:
            observation = Observation.of(loss, lr, epoch, reference)
            scheduler = self.engine.scheduler
            self.queue.worker.submit(lambda: scheduler.observe(observation), lambda: None)

    def watch(self, every: int = 100, say: Callable[[str], None] | None = None) -> None:
        """Says one line every so many steps: the codec, the ratio, what is sent, and how long a step takes.

        By default rank 0 prints it. `say` gets the line instead, on every rank that passes one.

        >>> compressor.watch(every=200)                                              # doctest: +SKIP
        step 200: qsgd:4, 5.8x fewer bytes (0.676 MB a step), 84 ms a step
        """
        if every < 1:
            raise PlanError(f"watch(every={every}) must be at least 1 step")
        say = say or (print if self.group.rank == 0 else lambda line: None)
        self.queue.watch = StepWatch(weakref.ref(self), every, say)

    strength = FormerAttribute("compression_level")

    @property
    def compression_level(self) -> float:
        """The compression level of the last step, from 0 to 1: 1 without a schedule."""
        return self.engine.scheduler.compression_level

    @property
    def theta(self) -> float | None:
        """The part of the numbers that is dropped, if the codec drops any and the same of every tensor."""
        return self.engine.scheduler.theta

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises if the optimizer applies momentum where error feedback already does (dgc); call it once.

        Weight decay gets the same momentum there, kept in the optimizer's state. Error feedback with lr=on
        go by this optimizer's learning rates from here on, whoever changes them.

        >>> compressor = compress(ddp_model, "dgc:0.001")                             # doctest: +SKIP
        >>> groups = compressor.param_groups(ddp_model.parameters(), momentum=0.9)    # doctest: +SKIP
        >>> optimizer = torch.optim.SGD(groups, lr=0.1)                               # doctest: +SKIP
        >>> compressor.check_optimizer(optimizer)                                     # doctest: +SKIP
        """
        self._want_names("check_optimizer")
        self._optimizer.check(optimizer, self.plan)

    def param_groups(self, parameters: Iterable[Tensor], *, momentum: float) -> list[dict[str, Any]]:
        """Groups for torch.optim.SGD: no momentum where error feedback applies it (dgc), momentum elsewhere.

        Pass weight decay to SGD as usual; where error feedback applies momentum, decay gets it too.
        """
        self._want_names("param_groups")
        return self._optimizer.param_groups(parameters, self.plan, momentum)

    def follow(self, other: Compressor) -> None:
        """Takes what another compressor of the same net knows of the optimizer: workers in one process."""
        self._optimizer.follow(other._optimizer)

    def bind(self, wrapper: nn.Module) -> None:
        """Ties this compressor to the DDP model whose gradients it exchanges: it is closed when that dies."""
        self.owner = weakref.ref(wrapper)  # weak: the model holds its hook, which holds the state
        self._release_with(wrapper)

    def _described(self) -> tuple[str, str]:
        if self.auto is None:
            return super()._described()
        return f"auto ({self.auto.autotuner.codec})", self.auto.explanation

    def _saved(self, state: dict[str, Any]) -> dict[str, Any]:
        return state if self.auto is None else self.auto.saved(state)

    def _load_beside(self, state: Mapping[str, Any]) -> None:
        if self.auto is None:
            super()._load_beside(state)
        else:
            self.auto.load(state)

    def _selector(self, quality: str, module: nn.Module, can_pass: bool, about_quality: str) -> AutoSelector:
        """What selects the codec of an auto run; it must not hold the compressor."""
        engine, node, group, either = self.engine, self.node, self.group, self.either
        model, layouts = Model.of(module), list[Layout]()
        plan_of = plans_of_auto(self.policy, model, self.nodes)
        profiler = Profiler(engine.group, group, either, self.device, model, layouts)
        actions = GroupActions(
            engine.group,
            group,
            self.device,
            profiler,
            partial(call_measuring, self.queue.worker, engine.clock),
            switch=lambda text: node.switch(engine, plan_of(text)),
            adopt=lambda text: node.adopt(engine, plan_of(text)),
        )
        autotuner = Autotuner(quality, actions, group.size, either is not None)
        guard = Safeguard(engine, node, group)
        return AutoSelector(
            autotuner, guard, layouts, lambda: can_pass and not node.owes(engine), about_quality
        )
