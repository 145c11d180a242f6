"""A compressor: an engine behind a worker thread, with the names and the life of one model."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from thinwire.auto.actions import Helm
from thinwire.auto.autotuner import Pilot
from thinwire.auto.profiler import Survey
from thinwire.clock import COMPARE, CONNECT, OUTSIDE, PLAN, ROLL_CALL, TRAINING
from thinwire.errors import PlanError, StateError
from thinwire.exchange.drift import drift_check
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import EitherWay, Node, node_of
from thinwire.exchange.report import Report, report_of
from thinwire.exchange.state import NotTaken, opened, sealed
from thinwire.groups.base import Group
from thinwire.groups.hierarchy import Hierarchy, settle
from thinwire.groups.torch import on_the_wire
from thinwire.hooks import failures as blame
from thinwire.hooks.copies import Detached
from thinwire.hooks.failures import PlainWay, listening
from thinwire.hooks.optimizer import KnownOptimizer
from thinwire.hooks.planner import KnownTensors, Planner, plans_of_auto
from thinwire.hooks.selector import Course, Fixed, Piloted, RawGradients, Safeguard
from thinwire.hooks.worker import HeldBucket, SideStream, WholeGradient, Worker, norm_of
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
        memory: str | None = None,
        route: str | None = None,
        control: str | None = None,
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
        self._loss_scale = loss_scale
        self.owner: Callable[[], nn.Module | None] = lambda: None  # the wrapper whose gradients these are
        self.plain = PlainWay()
        self._tensors = KnownTensors(module)
        self._passing: list[Layout] = []  # of this step, those that went DDP's own way
        self._counted = threading.Event()  # the last step that went so is over for the engine
        self._counted.set()
        self._optimizer = KnownOptimizer(self._tensors.names)
        self._whole = WholeGradient()
        self._stream = SideStream(device)
        stage = CONNECT
        try:
            nodes = settle(group, hierarchy, device)
            self.hierarchy = nodes if quality is None else Hierarchy(group)  # auto begins without nodes
            stage = PLAN
            self._planner = Planner(
                policy, module, self.hierarchy, memory=memory, route=route, control=control
            )
            asked = self._planner.asked
            if optimizer is not None:
                self._want_names("optimizer=")
                self._optimizer.refuse_another(optimizer)
                self._optimizer.check(optimizer, asked)
            self._drift = drift_check(group, module, check_every, on_drift)
            stage = CONNECT
            group.connect()
            stage = COMPARE
            either = EitherWay(nodes, device) if nodes.per_node != self.hierarchy.per_node else None
            self.node: Node = either or node_of(self.hierarchy, asked, device)
            self.engine = Engine(asked, self.hierarchy.leaders(), device, seed, pick(device, kernels))
        except Exception as error:
            explained = blame.explain(error, stage, group)
            group.close()
            raise explained from (None if explained is error else error)
        if module is not None:
            self._planner.warn()
        # Neither may hold the compressor: its thread would keep alive what ends it.
        clock = self.engine.clock
        self._worker = Worker(
            lambda error: blame.explain(error, clock.current, group), group.close, group.abort
        )
        self._release_with(self)
        self.course: Course = Fixed()
        if quality is not None and module is not None:
            self.course = self._piloted(quality, Model.of(module), nodes, either, can_pass, about_quality)

    @property
    def plan(self) -> Plan:
        """Every tensor's codec, memory and route; print it. Under auto those of now."""
        return self.course.plan(self._planner.asked, self.engine.plan)

    @property
    def decided(self) -> bool:
        """Whether the codec is settled: always, but for the first steps of an auto run."""
        return self.course.decided

    @property
    def error(self) -> Exception | None:
        """The error that ended this compressor's exchanges, or None."""
        return self._worker.error

    @property
    def failed(self) -> bool:
        """Whether an exchange failed; a compressor that was closed has not."""
        return self._worker.failed

    def fail(self, error: Exception, stage: str) -> Exception:
        """Ends the exchanges for an error met elsewhere; gives the one that names who is to blame for it."""
        clock = self.engine.clock

        def meet() -> None:
            clock.current = stage
            raise error

        try:
            self._worker.call(meet)
        except Exception as named:
            return named
        raise AssertionError("a job that raises has ended well")

    def listening(self, process_group: dist.ProcessGroup) -> AbstractContextManager[None]:
        """While DDP is in a collective of its own: a peer that takes part no more ends it with an error."""
        return listening(self.group, process_group, self._worker.submit)

    def begin_step(self) -> None:
        """Before the first bucket of a step: whoever has loaded a state waits until all ranks have."""
        if self.error is not None:
            return
        try:
            self.group.begin_exchange()
        except (RuntimeError, PlanError) as error:
            self.fail(error, ROLL_CALL)  # raised at the end of the backward pass

    def end_backward(self) -> None:
        """The backward pass has all its means; raises what ended the exchanges, every time anew."""
        self.course.end_backward()
        self._counted.wait()  # parameters change behind the backward pass
        self.raise_error()

    def pass_by(self, parameters: list[Tensor], is_last: bool, shadowing: bool = False) -> None:
        """A bucket went DDP's own way: its bytes are counted, and drift is looked for as ever.

        That is done on the worker's thread, and waited for at the end of the backward pass, when it is over
        in most cases: DDP's own way must cost no more than DDP.
        """
        layout, _ = self._layout(parameters)
        unsent = self._passing
        unsent.append(layout)
        if not is_last:
            return
        layouts, self._passing = tuple(unsent), []
        counted = self._counted = threading.Event()

        def job() -> None:
            self.engine.pass_step(layouts)
            self._look_for_drift(shadowing)
            self.engine.clock.current = OUTSIDE
            counted.set()
            self.plain.wait(self.group)

        self._worker.submit(job, counted.set)
        if shadowing:
            counted.wait()

    def exchange(
        self,
        buffer: Tensor,
        parameters: list[Tensor],
        is_last: bool,
        done: Callable[[], None],
        shadowing: bool = False,
        views: Sequence[Tensor] = (),
    ) -> None:
        """Queues the exchange of one flat bucket; `done` is called when its means (or an error) are there.

        `shadowing`: this rank has run out of inputs (`Join`) and only takes part. `views`: those of the
        buffer, tensor by tensor, if it holds what the parameters' grads hold.
        """
        layout, news = self._layout(parameters)
        bucket = Bucket(buffer, layout, self._loss_scale() if self._loss_scale else 1.0)
        rates = self._optimizer.rates(self.plan)
        ready = self._stream.mark()
        raw = RawGradients.of(buffer, () if shadowing else views, parameters)

        def job() -> None:
            with self._stream.behind(ready):
                if news is not None:
                    self.engine.join(news)
                self.engine.set_rates(rates)
                self.course.exchange(self.node, self.engine, bucket, raw)
            if is_last:
                self.node.end_step(self.engine)
                self._look_for_drift(shadowing)

        def finish() -> None:
            with self._stream.behind():
                done()

        if not self.plan.uses_norm:
            self._worker.submit(job, finish)
            return
        self._whole.hold(HeldBucket(bucket, job, finish))
        if is_last:
            self._exchange_whole(ready)

    def _exchange_whole(self, ready: torch.cuda.Event | None) -> None:
        """All buckets of the step are there: their norm is taken before the first of them is encoded."""
        held = self._whole.release()

        def measure() -> None:
            with self._stream.behind(ready):
                self.engine.set_norm(norm_of(one.bucket for one in held))

        self._worker.submit(measure, lambda: None)
        for one in held:
            self._worker.submit(one.job, one.finish)

    def _look_for_drift(self, shadowing: bool) -> None:
        self.engine.clock.current = COMPARE
        self._drift.check(self.engine.step, shadowing)

    def raise_error(self) -> None:
        """Raises what ended the exchanges, every time anew; of DDP's own all-reduce too it names the rank."""
        if self.plain.error is not None and not self.failed:
            self.plain.hang_up()
            raise self.fail(self.plain.error, OUTSIDE) from self.plain.error
        if self.error is not None:
            raise self.error

    def wait(self) -> None:
        """Waits for all queued exchanges and raises what ended them."""
        self._worker.call(lambda: None)

    def observe(
        self,
        loss: float | Tensor | None = None,
        *,
        lr: float | None = None,
        epoch: float | None = None,
        reference: float | Tensor | None = None,
    ) -> None:
        """Tells the control how training goes: call it on every rank, equally often between two steps.

        The next exchange decides by it, on all ranks alike. `loss` is this rank's own loss or any metric, a
        number or a tensor of one element; `reference` is what it should be by now; `lr` and `epoch` must be
        equal on all ranks. Without a control it does nothing, so that a script may keep the line.

        >>> compressor = compress(ddp_model, "topk:0.01", control="guard")           # doctest: +SKIP
        >>> loss.backward(); optimizer.step(); compressor.observe(loss)              # doctest: +SKIP
        """
        if self.engine.steering.listens:
            observation = Observation.of(loss, lr, epoch, reference)
            self._worker.submit(lambda: self.engine.steering.observe(observation), lambda: None)

    @property
    def strength(self) -> float:
        """How strong the codec was in the last step, from 0 to 1: 1 without a control."""
        return self.engine.steering.strength

    @property
    def theta(self) -> float | None:
        """The part of the numbers that is dropped, if the codec drops any and the same of every tensor."""
        return self.engine.steering.theta

    def check_optimizer(self, optimizer: torch.optim.Optimizer) -> None:
        """Raises if the optimizer applies momentum to tensors whose memory does (dgc); call it once.

        Their weight decay gets the memory's momentum, kept in the optimizer's own state. Memories with lr=on
        go by this optimizer's learning rates from here on, whoever changes them.

        >>> compressor = compress(ddp_model, "dgc:0.001")                             # doctest: +SKIP
        >>> groups = compressor.param_groups(ddp_model.parameters(), momentum=0.9)    # doctest: +SKIP
        >>> optimizer = torch.optim.SGD(groups, lr=0.1)                               # doctest: +SKIP
        >>> compressor.check_optimizer(optimizer)                                     # doctest: +SKIP
        """
        self._want_names("check_optimizer")
        self._optimizer.check(optimizer, self.plan)

    def param_groups(self, parameters: Iterable[Tensor], *, momentum: float) -> list[dict[str, Any]]:
        """Groups for torch.optim.SGD: no momentum where the memory applies it (dgc), momentum elsewhere.

        Weight decay is given to SGD as ever; where the memory applies momentum, decay gets it too.
        """
        self._want_names("param_groups")
        return self._optimizer.param_groups(parameters, self.plan, momentum)

    def follow(self, other: Compressor) -> None:
        """Takes what another compressor of the same net knows of the optimizer: workers in one process."""
        self._optimizer.follow(other._optimizer)

    def report(self) -> Report:
        """Bytes, ratio, seconds by stage and errors by layer, so far and on this worker."""
        codec = self.course.text(str(self.policy.rest))
        return report_of(self.engine, self.node, self.plan, codec, self.course.explanation)

    def state_dict(self, *, gather: bool = False) -> dict[str, Any]:
        """What to save: this rank's own state, or with `gather` (collective) that of all ranks.

        Bytes without code, for `torch.save` and for torch.distributed.checkpoint, to which a compressor is a
        Stateful: `dcp.save({"compressor": compressor, ...})` saves each rank's own.
        """
        self._want_names("state_dict")

        def job() -> dict[str, Any]:
            if gather:
                self._call_roll("state_dict(gather=True)")
            return self.node.state(self.engine, gather)

        return sealed(self.course.saved(self._worker.call(job)), self.group.rank)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> NotTaken:
        """Goes on where `state` was taken; refuses the state of another model, codec, version or rank.

        `strict`: if False (layers were frozen since, or thawed, or have another codec) it takes what fits
        and returns the names of what it did not take, as torch's modules do.
        """
        self._want_names("load_state_dict")
        self.wait()  # what was observed before must not come after
        state = opened(state, self.group.rank)
        self.course.load(state)
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
        self._worker.close()

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

    def _call_roll(self, what: str) -> None:
        """Nothing is sent before all ranks have called it: messages of other sizes would end the process."""
        self.group.announce(what)
        self.engine.clock.current = ROLL_CALL
        self.group.await_calls()

    def _release_with(self, thing: object) -> None:
        weakref.finalize(thing, self._worker.stop).atexit = False  # the end of a process waits for nobody

    def _want_names(self, what: str) -> None:
        if not self._tensors.named:
            raise StateError(f"{what} needs parameter names: pass model= to ddp_hook")

    def _layout(self, parameters: list[Tensor]) -> tuple[Layout, Plan | None]:
        """Where the tensors lie, and a plan for those that were never seen before."""
        layout = self._tensors.layout(parameters)
        news = self._planner.news(layout)
        self.course.note(layout)
        return layout, news

    def _piloted(
        self,
        quality: str,
        model: Model,
        nodes: Hierarchy,
        either: EitherWay | None,
        can_pass: bool,
        about_quality: str,
    ) -> Course:
        """The course of an auto run; it must not hold the compressor."""
        engine, node, group, layouts = self.engine, self.node, self.group, list[Layout]()
        plan_of = plans_of_auto(self.policy, model, nodes)
        survey = Survey(engine.group, group, either, self.device, model, layouts)
        helm = Helm(
            engine.group,
            group,
            self.device,
            survey,
            self._worker.call,
            switch=lambda text: node.switch(engine, plan_of(text)),
            adopt=lambda text: node.adopt(engine, plan_of(text)),
        )
        pilot = Pilot(quality, helm, group.size, either is not None)
        guard = Safeguard(engine, node, group)
        return Piloted(pilot, guard, layouts, lambda: can_pass and not node.owes(engine), about_quality)
