"""A compressor: an engine behind a worker thread, with the names and the life of one model."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from thinwire.auto.actions import GroupActions
from thinwire.auto.autotuner import Autotuner
from thinwire.auto.profiler import Profiler
from thinwire.clock import COMPARE, CONNECT, OUTSIDE, PLAN, TRAINING
from thinwire.deprecated import FormerAttribute
from thinwire.errors import PlanError, StateError
from thinwire.exchange.drift import drift_check
from thinwire.exchange.engine import Engine
from thinwire.exchange.nodes import Node, SwitchableNode, node_of
from thinwire.exchange.packing import opened, sealed
from thinwire.exchange.report import Report, report_of
from thinwire.exchange.state import NotTaken
from thinwire.groups.base import Group
from thinwire.groups.hierarchy import Hierarchy, settle
from thinwire.groups.torch import on_the_wire
from thinwire.hooks.buckets import BucketQueue
from thinwire.hooks.failures import explain
from thinwire.hooks.optimizer import KnownOptimizer
from thinwire.hooks.planner import Planner, plans_of_auto
from thinwire.hooks.selector import AutoSelector, Safeguard
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import Observation
from thinwire.tensors import Layout


class Compressor:
    """What `tw.compress` returns: the running exchange of one model's gradients, its report and its state."""

    def __init__(
        self,
        policy: Policy,
        group: Group,
        device: torch.device,
        module: nn.Module | None,
        *,
        feedback: str | None = None,
        route: str | None = None,
        schedule: str | None = None,
        seed: int = 0,
        kernels: str | None = None,
        loss_scale: Callable[[], float] | None = None,
        check_every: int | None = None,
        on_drift: str = "raise",
        quality: str | None = None,
        about_quality: str = "",
        optimizer: torch.optim.Optimizer | None = None,
        hierarchy: str | int | None = "off",
        can_pass: bool = False,
    ) -> None:
        self.policy, self.group, self.device = policy, group, device
        self.owner: Callable[[], nn.Module | None] = lambda: None  # the wrapper whose gradients these are
        stage = CONNECT
        try:
            nodes = settle(group, hierarchy, device)
            self.hierarchy = nodes if quality is None else Hierarchy(group)  # auto begins without nodes
            stage = PLAN
            asked = {"feedback": feedback, "route": route, "schedule": schedule}
            planner = Planner(policy, module, self.hierarchy, **asked)
            self._named, self._optimizer = module is not None, KnownOptimizer(planner.names)
            if optimizer is not None:
                self._want_names("optimizer=")
                self._optimizer.check_own(optimizer, planner.asked)
            drift = drift_check(group, module, check_every, on_drift)
            stage = CONNECT
            group.connect()
            stage = COMPARE
            either = SwitchableNode(nodes, device) if nodes.per_node != self.hierarchy.per_node else None
            self.node: Node = either or node_of(self.hierarchy, planner.asked, device)
            self.engine = Engine(planner.asked, self.hierarchy.leaders(), device, seed, pick(device, kernels))
        except Exception as error:
            explained = explain(error, stage, group)
            group.close()
            raise explained from (None if explained is error else error)
        planner.warn()
        self.queue = BucketQueue(self.engine, self.node, group, planner, self._optimizer, drift, loss_scale)
        self._release_with(self)
        if quality is not None and module is not None:
            self.queue.auto = self._selector(quality, module, nodes, either, can_pass, about_quality)

    @property
    def auto(self) -> AutoSelector | None:
        """What selects the codec in an auto run; None where one was asked for by name."""
        return self.queue.auto

    @property
    def plan(self) -> Plan:
        """Every tensor's codec, error feedback and route; print it. Under auto, those in use now."""
        return self.queue.plan

    @property
    def decided(self) -> bool:
        """Whether the codec is settled: always, but for the first steps of an auto run."""
        return self.auto is None or self.auto.decided

    @property
    def error(self) -> Exception | None:
        """The error that ended this compressor's exchanges, or None."""
        return self.queue.worker.error

    @property
    def failed(self) -> bool:
        """Whether an exchange failed; a compressor that was closed has not."""
        return self.queue.worker.failed

    def fail(self, error: Exception, stage: str) -> Exception:
        """Ends the exchanges for an error met elsewhere; gives the one that names who is to blame for it."""
        return self.queue.fail(error, stage)

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

    def report(self) -> Report:
        """Bytes, ratio, seconds by stage and errors by layer, so far and on this worker."""
        auto, codec = self.auto, str(self.policy.rest)
        if auto is not None:
            codec = f"auto ({auto.autotuner.codec})"
        explanation = "" if auto is None else auto.explanation
        return report_of(self.engine, self.node, self.plan, codec, explanation)

    def state_dict(self, *, gather: bool = False) -> dict[str, Any]:
        """What to save: this rank's own state, or with `gather` (collective) that of all ranks.

        Bytes without code, for `torch.save` and for torch.distributed.checkpoint, to which a compressor is a
        Stateful: `dcp.save({"compressor": compressor, ...})` saves each rank's own.
        """
        self._want_names("state_dict")

        def job() -> dict[str, Any]:
            if gather:
                self.queue.call_roll("state_dict(gather=True)")
            return self.node.state(self.engine, gather)

        state = self.queue.worker.call(job)
        return sealed(state if self.auto is None else self.auto.saved(state), self.group.rank)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> NotTaken:
        """Goes on where `state` was taken; refuses the state of another model, codec, version or rank.

        `strict`: if False (layers were frozen since, or thawed, or have another codec) it takes what fits
        and returns the names of what it did not take, as torch's modules do.
        """
        self._want_names("load_state_dict")
        self.wait()  # what was observed before must not come after
        state = opened(state, self.group.rank)
        if self.auto is not None:
            self.auto.load(state)
        elif isinstance(state, Mapping) and "auto" in state:
            raise StateError('the state is of an auto run, this compressor is not: pass codec="auto"')
        not_taken = self.node.load(self.engine, state, strict)
        self.group.announce(f"load_state_dict (of step {self.engine.step})")
        return not_taken

    def bind(self, wrapper: nn.Module) -> None:
        """Ties this compressor to the DDP model whose gradients it exchanges: it is closed when that dies."""
        self.owner = weakref.ref(wrapper)  # weak: the model holds its hook, which holds the state
        self._release_with(wrapper)

    def close(self) -> None:
        """Ends threads and connections; call it, or leave a `with` block, after the last step.

        Exchanges that are queued are finished; `report` still works, a later backward pass does not. Twice is
        no error. A compressor whose model was collected has closed itself.
        """
        self._optimizer.forget()
        self.queue.worker.close()

    def __reduce__(self) -> tuple[type[Detached], tuple[()]]:
        """Copies of a model are not compressed: connections cannot be copied, let alone saved."""
        return Detached, ()

    def __enter__(self) -> Compressor:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        """Closes; if the block failed the other ranks are told why this one takes part no more.

        An error of a collective that is not ours gets a note that names who is to blame for it.
        """
        if isinstance(error, Exception):
            named = self.fail(error, OUTSIDE if on_the_wire(error) else TRAINING)
            if named is not error:
                error.add_note(f"thinwire: {named}")
        self.close()

    def _release_with(self, thing: object) -> None:
        weakref.finalize(
            thing, self.queue.worker.stop
        ).atexit = False  # the end of a process waits for nobody

    def _want_names(self, what: str) -> None:
        if not self._named:
            raise StateError(f"{what} needs parameter names: pass model= to ddp_hook")

    def _selector(
        self,
        quality: str,
        module: nn.Module,
        nodes: Hierarchy,
        either: SwitchableNode | None,
        can_pass: bool,
        about_quality: str,
    ) -> AutoSelector:
        """What selects the codec of an auto run; it must not hold the compressor."""
        engine, node, group, layouts = self.engine, self.node, self.group, list[Layout]()
        model = Model.of(module)
        plan_of = plans_of_auto(self.policy, model, nodes)
        profiler = Profiler(engine.group, group, either, self.device, model, layouts)
        actions = GroupActions(
            engine.group,
            group,
            self.device,
            profiler,
            self.queue.worker.call,
            switch=lambda text: node.switch(engine, plan_of(text)),
            adopt=lambda text: node.adopt(engine, plan_of(text)),
        )
        autotuner = Autotuner(quality, actions, group.size, either is not None)
        guard = Safeguard(engine, node, group)
        return AutoSelector(
            autotuner, guard, layouts, lambda: can_pass and not node.owes(engine), about_quality
        )


class Detached:
    """Stands where the original has its compressor. A copy that is to be compressed gets one of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PlanError(
            "this is a copy of a compressed model or of its compressor, and exchanges nothing: call "
            "compress(copy, ...) if the copy is to be trained with compressed gradients"
        )
