"""FSDP2: reduce-scatters and all-gathers of every unit go by the engine, in few bits."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from thinwire.clock import PREPARE, WEIGHTS
from thinwire.codecs.coder import Context
from thinwire.errors import PlanError, StateError
from thinwire.exchange.drift import DriftCheck
from thinwire.exchange.engine import Bucket
from thinwire.exchange.report import Report
from thinwire.exchange.weights import UnitWeights, WeightCodec
from thinwire.groups.base import Group, all_gather_bytes
from thinwire.groups.wrappers import Metered
from thinwire.hooks.exchanger import Exchanger
from thinwire.hooks.fsdp_replicas import ReplicaExchange, ReplicaGrid
from thinwire.hooks.fsdp_state import recut, saved_weights, take_weights
from thinwire.hooks.fsdp_units import Unit
from thinwire.hooks.planner import NamedTensors
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import MIN_NUMEL, Model, Policy
from thinwire.plans.sharded import ShardedPlan, WeightsPlan
from thinwire.tensors import Layout, Spec

KEEP_WEIGHTS = ("vector", "small")  # weights that travel as they are


class ShardedCompressor(Exchanger):
    """What `tw.compress` returns for an FSDP2 model: the running exchange of its units, report and state.

    In a backward pass every unit's gradients go by `reduce`: row r of them, in few bits, to rank r, which
    adds up and decodes its own row. In forward and backward passes weights come by `gather`.
    """

    def __init__(
        self,
        policy: Policy,
        group: Group,
        model: nn.Module,
        units: Sequence[Unit],
        *,
        weights: WeightCodec | None = None,
        grid: ReplicaGrid | None = None,
        between: Mapping[str, Any] | None = None,
        optimizer: torch.optim.Optimizer | None = None,
        seed: int = 0,
        kernels: str | None = None,
        **options: Any,
    ) -> None:
        device, self._grid = units[0].group.device, grid
        world, rank = (group.size, group.rank) if grid is None else grid.place(group.rank)
        context = Context(world, rank, device, pick(device, kernels))
        self._weights = _unit_weights(units, weights, model, context, seed)
        self._layouts: dict[tuple[str, torch.dtype], Layout] = {}
        self._begun, self._of_model, self.replicas = False, optimizer, None
        self._scale: Callable[[], float] = options.get("loss_scale") or (lambda: 1.0)
        trained = [unit for unit in units if unit.chunks(unit.reduce_dtype, trainable=True)]
        rows = [unit.rows(unit.reduce_dtype, world) for unit in trained]
        planned = _planned(units, weights, self._weights, world)
        super().__init__(
            policy,
            group,
            device,
            NamedTensors.of(model),
            seed=seed,
            kernels=kernels,
            shape=lambda plan: ShardedPlan.sharded(replace(plan, world=world), rows, planned),
            **options,
        )
        del self._of_model
        self._gathers = Metered(self.engine.group.inner)
        if between is not None:
            self.replicas = self._replicas(model, units, seed, kernels, **between)
        self._attach(units)
        self._release_with(model)

    def _meeting(self) -> Group:
        if self._grid is None:
            return self.group
        return self.group.part(self._grid.shard, inside=True)

    def _replicas(
        self, model: nn.Module, units: Sequence[Unit], seed: int, kernels: str | None, **asked: Any
    ) -> ReplicaExchange:
        """Connects this rank with those that hold the same rows, and takes the weights of the first."""
        assert self._grid is not None
        ranks = self._grid.replicas

        def job() -> ReplicaExchange:
            made = ReplicaExchange(
                model=model,
                group=self.group.part(ranks),
                device=self.device,
                seed=seed,
                kernels=kernels,
                **asked,
            )
            made.equalise(units)
            return made

        return self.queue.worker.call(job)

    def _checked(self, plan: Plan) -> DriftCheck:
        if self._of_model is not None:
            self._optimizer.check_own(self._of_model, plan)
        return DriftCheck(self.group, (), 0)

    @property
    def plan(self) -> ShardedPlan:
        """Every tensor's codec and route, the weights', and exact bytes; print it."""
        plan = self.queue.plan
        assert isinstance(plan, ShardedPlan)
        return plan

    def wait(self) -> None:
        """Raises what ended the exchanges; there is nothing to wait for, backward has all its means."""
        self.queue.worker.call(lambda: None)

    def report(self) -> Report:
        """Bytes, ratio, seconds by stage and errors by layer, so far and on this worker."""
        steps = max(1, self.engine.statistics.steps)
        return replace(super().report(), weights_bytes_per_step=self._gathers.step_bytes / steps)

    def reduce(self, unit: Unit, output: Tensor, rows: Tensor, op: Any) -> None:
        """A unit's reduce-scatter: `rows` (ranks * elements) to the mean (or sum) of this rank's row."""
        group = self.engine.group
        try:
            layout, factor = self._layout(unit, rows), _factor(op, self.engine.group.size)
        except PlanError as error:  # the others must not wait for this rank
            raise self.fail(error, PREPARE) from None
        self._begin()
        bucket = Bucket(rows, layout, self._scale())
        self.queue.worker.call(lambda: self.engine.exchange(bucket))
        output.copy_(rows.view(group.size, -1)[group.rank])
        if factor != 1:
            output.mul_(factor)

    def gather(self, unit: Unit, output: Tensor, row: Tensor) -> None:
        """A unit's all-gather: this rank's `row` to the rows of all, in few bits if that was asked for."""
        meter, world = self._gathers, self._gathers.size
        weights = self._weights.get(unit.name)
        clock, step = self.engine.clock, self.engine.step
        plain = weights is None or row.dtype == torch.uint8 or row.numel() != weights.row.numel

        def job() -> None:
            with clock.time(WEIGHTS):
                if plain or weights is None:
                    sent, room = row.view(torch.uint8), output.view(torch.uint8)
                    meter.all_gather(sent, room.view(world, -1)).wait()
                else:
                    weights.gather(meter, row, output.view(world, -1), step, unit.in_backward)

        self.queue.worker.call(job)

    def between(self, unit: Unit, output: Tensor) -> None:
        """Between replicas: the mean of this rank's row over them."""
        assert self.replicas is not None
        replicas, dtype = self.replicas, output.dtype
        layout = Layout.packed(unit.chunks(dtype, trainable=True))
        bucket = Bucket(output, layout, self._scale())
        self.queue.worker.call(lambda: replicas.exchange(bucket))

    def _layout(self, unit: Unit, rows: Tensor) -> Layout:
        key = unit.name, rows.dtype
        if key not in self._layouts:
            self._layouts[key] = unit.rows(rows.dtype, self.engine.group.size)
        layout = self._layouts[key]
        if layout.numel != rows.numel():
            raise PlanError(
                f'some parameters of unit "{unit.name or "the root"}" got no gradient in this backward pass '
                f"({rows.numel():,} of {layout.numel:,} elements did), or were frozen or thawed since: call "
                "model.set_reduce_scatter_unused_params(True), or compress behind requires_grad_"
            )
        return layout

    def _begin(self) -> None:
        """The first reduce-scatter of a backward pass: whoever waits for a call of this rank is heard now."""
        if self._begun:
            return
        self.queue.begin_step()
        self.queue.raise_error()
        self._begun = True
        execution: Any = torch.autograd.Variable._execution_engine
        ends = weakref.WeakMethod(self._end)

        def end() -> None:
            method = ends()
            if method is not None:
                method()

        def behind_torch() -> None:  # FSDP2 reduces its root in a callback of its own
            execution.queue_callback(end)

        execution.queue_callback(behind_torch)

    def _end(self) -> None:
        """The backward pass has all its means."""
        self._begun = False

        def job() -> None:
            self.engine.agree_on_finite()
            self.engine.end_step()
            if self.replicas is not None:
                self.replicas.end_step()

        self.queue.worker.call(job)

    def _attach(self, units: Sequence[Unit]) -> None:
        for unit in units:
            unit.module.set_custom_reduce_scatter(_Reduce(self, unit))
            unit.module.set_custom_all_gather(_Gather(self, unit))
            if self.replicas is not None:
                unit.module.set_all_reduce_hook(_hook(self, unit))

    def _saved(self, state: dict[str, Any]) -> dict[str, Any]:
        gathered = bool(state.get("gathered"))
        if gathered and self.replicas is not None:
            raise StateError("with replicate_group= every rank saves its own state: leave out gather=True")
        more = {} if self.replicas is None else {"replicas": self.replicas.state()}
        return {**state, **more, "weights": saved_weights(self._weights, gathered)}

    def _load_beside(self, state: Mapping[str, Any]) -> None:
        super()._load_beside(state)
        recut(state, {spec.name: _numel(self.plan, spec.name) for spec in _specs(self.plan)})
        take_weights(self._weights, state.get("weights", {}), state.get("world"), self.engine.group.size)
        if self.replicas is not None:
            self.replicas.load(state.get("replicas"))


def _planned(
    units: Sequence[Unit], how: WeightCodec | None, weights: Mapping[str, UnitWeights], world: int
) -> WeightsPlan:
    """What gathering weights costs; those of a forward pass serve the backward pass where a copy is kept."""
    differs, sent, plain, copies = how is not None and how.differs, 0, 0, 0
    for unit in units:
        times = 1 + unit.reshards
        once = all_gather_bytes(unit.row(unit.weight_dtype).numel * unit.weight_dtype.itemsize, world)
        plain += times * once
        packed = weights.get(unit.name)
        sent += (1 if differs else times) * (once if packed is None else packed.gather_bytes)
        copies += 0 if packed is None else packed.copy_bytes
    return WeightsPlan("as they are" if how is None else str(how), sent, plain, copies)


def _specs(plan: ShardedPlan) -> list[Spec]:
    return [spec for layout in plan.units for spec in layout.specs]


def _numel(plan: ShardedPlan, name: str) -> int:
    return sum(spec.numel for spec in _specs(plan) if spec.name == name)


def _factor(op: Any, world: int) -> float:
    """By what the mean is multiplied to be what torch asks for."""
    if op == dist.ReduceOp.AVG:
        return 1.0
    if op == dist.ReduceOp.SUM:
        return float(world)
    raise PlanError(
        "set_gradient_divide_factor cannot be honoured: gradients are means over all ranks; leave it out and "
        "scale the loss instead"
    )


def _unit_weights(
    units: Sequence[Unit], how: WeightCodec | None, model: nn.Module, context: Context, seed: int
) -> dict[str, UnitWeights]:
    """By unit; empty if weights travel as they are."""
    if how is None:
        return {}
    policy, known, found = Policy((), how.codec, KEEP_WEIGHTS, MIN_NUMEL), Model.of(model), {}
    for unit in units:
        row = unit.row(unit.weight_dtype)
        whole = {p: Spec(p, _whole_shape(unit, p)) for p in unit.names}
        coded = {name for name, spec in whole.items() if policy.choose(spec, known).codec == how.codec}
        found[unit.name] = UnitWeights(row, coded, how, context, seed)
    return found


def _whole_shape(unit: Unit, name: str) -> tuple[int, ...]:
    index = unit.names.index(name)
    return tuple(unit.group.fsdp_params[index].sharded_param.shape)


class _Comm:
    """Buffers as torch's own collectives have them."""

    def __init__(self, compressor: ShardedCompressor, unit: Unit) -> None:
        self.compressor, self.unit = compressor, unit

    def allocate(self, size: Sequence[Any], *, dtype: torch.dtype, device: torch.device) -> Tensor:
        return torch.empty(*size, dtype=dtype, device=device)


class _Reduce(_Comm, ReduceScatter):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, op: Any, async_op: bool = False
    ) -> None:
        self.compressor.reduce(self.unit, output_tensor, input_tensor, op)


class _Gather(_Comm, AllGather):
    def __call__(
        self, output_tensor: Tensor, input_tensor: Tensor, group: Any, async_op: bool = False
    ) -> None:
        if (
            group.size() != self.compressor.engine.group.size
        ):  # resharded to fewer ranks behind the forward pass
            dist.all_gather_into_tensor(output_tensor, input_tensor, group=group)
            return
        self.compressor.gather(self.unit, output_tensor, input_tensor)


def _hook(compressor: ShardedCompressor, unit: Unit) -> Callable[[Tensor], None]:
    return lambda output: compressor.between(unit, output)
