"""The buckets of one model: queued by DDP's hook, exchanged by one thread behind the backward pass."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import TypeVar

import torch.distributed as dist
from torch import Tensor

from thinwire.clock import COMPARE, OUTSIDE, ROLL_CALL
from thinwire.errors import PlanError
from thinwire.exchange.drift import DriftCheck
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import Node
from thinwire.groups.base import Group
from thinwire.hooks.failures import PlainAllReduce, explain, listening
from thinwire.hooks.optimizer import KnownOptimizer
from thinwire.hooks.planner import Planner
from thinwire.hooks.selector import AutoSelector, RawGradients
from thinwire.hooks.worker import HeldBucket, SideStream, WholeGradient, Worker, norm_of
from thinwire.plans.plan import Plan
from thinwire.tensors import Layout

T = TypeVar("T")


class BucketQueue:
    """Hands buckets to the engine in the order in which they are ready, the same on all ranks.

    It must not hold the compressor, whose end stops its thread. `auto` selects the codec of each step, where
    none is fixed.
    """

    def __init__(
        self,
        engine: Engine,
        node: Node,
        group: Group,
        planner: Planner,
        optimizer: KnownOptimizer,
        drift: DriftCheck,
        loss_scale: Callable[[], float] | None,
    ) -> None:
        self.engine, self.node, self.group, self.planner = engine, node, group, planner
        self.plain = PlainAllReduce()
        self.auto: AutoSelector | None = None
        self.watch: Callable[[], None] | None = None  # called behind every backward pass
        self._optimizer, self._drift, self._loss_scale = optimizer, drift, loss_scale
        self._whole = WholeGradient()
        self._passing: list[Layout] = []  # of this step, those that went DDP's own way
        self._counted = threading.Event()  # the last step that went so is over for the engine
        self._counted.set()
        clock = engine.clock
        stream = SideStream.on(engine.context.device)
        self.worker = Worker(
            lambda error: explain(error, clock.current, group), group.close, group.abort, stream
        )

    @property
    def plan(self) -> Plan:
        """The plan that was asked for; under auto the one in force."""
        return self.planner.asked if self.auto is None else self.engine.plan

    def begin_step(self) -> None:
        """Before the first bucket of a step: whoever has loaded a state waits until all ranks have."""
        if self.worker.error is not None:
            return
        try:
            self.group.begin_exchange()
        except (RuntimeError, PlanError) as error:
            self.fail(error, ROLL_CALL)  # raised at the end of the backward pass

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
        plan, auto = self.plan, self.auto
        rates = None if self._optimizer.checked and not plan.uses_rates else self._optimizer.rates(plan)
        raw = None if auto is None else RawGradients.of(buffer, () if shadowing else views, parameters)

        def job() -> None:
            if news is not None:
                self.engine.join(news)
            if rates:
                self.engine.set_rates(rates)
            if auto is None or raw is None:
                self.node.exchange(self.engine, bucket)
            else:
                auto.exchange(bucket, raw)
            if is_last:
                self.node.end_step(self.engine)
                self._look_for_drift(shadowing)

        if not plan.uses_norm:
            self.worker.submit(job, done)
            return
        self._whole.hold(HeldBucket(bucket, job, done))
        if is_last:
            self._exchange_whole()

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

        self.worker.submit(job, counted.set)
        if shadowing:
            counted.wait()

    def end_backward(self) -> None:
        """The backward pass has all its means; raises what ended the exchanges, every time anew."""
        if self.auto is not None:
            self.auto.end_backward()
        self._counted.wait()  # parameters change behind the backward pass
        self.raise_error()
        if self.watch is not None:
            self.watch()

    def raise_error(self) -> None:
        """Raises what ended the exchanges, every time anew; of DDP's own all-reduce too it names the rank."""
        if self.plain.error is not None and not self.worker.failed:
            self.plain.hang_up()
            raise self.fail(self.plain.error, OUTSIDE) from self.plain.error
        if self.worker.error is not None:
            raise self.worker.error

    def fail(self, error: Exception, stage: str) -> Exception:
        """Ends the exchanges for an error met elsewhere; gives the one that names who is to blame for it."""
        clock = self.engine.clock

        def meet() -> None:
            clock.current = stage
            raise error

        try:
            self.worker.call(meet)
        except Exception as named:
            return named
        raise AssertionError("a job that raises has ended well")

    def listening(self, process_group: dist.ProcessGroup) -> AbstractContextManager[None]:
        """While DDP is in a collective of its own: a peer that takes part no more ends it with an error."""
        return listening(self.group, process_group, self.worker.submit)

    def call_roll(self, what: str) -> None:
        """Nothing is sent before all ranks have called it: messages of other sizes would end the process."""
        self.group.announce(what)
        self.engine.clock.current = ROLL_CALL
        self.group.await_calls()

    def _layout(self, parameters: list[Tensor]) -> tuple[Layout, Plan | None]:
        """Where the tensors lie, and a plan for those that were never seen before."""
        layout, news = self.planner.layout(parameters)
        if self.auto is not None:
            self.auto.layouts.append(layout)
        return layout, news

    def _exchange_whole(self) -> None:
        """All buckets of the step are there: their norm is taken before the first of them is encoded."""
        held = self._whole.release()

        def measure() -> None:
            self.engine.set_norm(norm_of(one.bucket for one in held))

        self.worker.submit(measure, lambda: None)
        for one in held:
            self.worker.submit(one.job, one.finish)

    def _look_for_drift(self, shadowing: bool) -> None:
        self.engine.clock.current = COMPARE
        self._drift.check(self.engine.step, shadowing)
