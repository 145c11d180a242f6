"""A planner: a compressor's policy and options, applied to the tensors of its model as they show up."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from thinwire.auto.qualities import Selection
from thinwire.errors import PlanError
from thinwire.groups.hierarchy import Hierarchy
from thinwire.plans.plan import Plan, warn_idle
from thinwire.plans.policy import Model, Policy, parameter_names
from thinwire.tensors import Layout, Spec


@dataclass(frozen=True)
class NamedTensors:
    """What is exchanged: all that a policy may know of it, and the name of every tensor by its id."""

    model: Model
    names: Mapping[int, str]

    @classmethod
    def of(cls, module: nn.Module) -> NamedTensors:
        """The parameters of a module."""
        return cls(Model.of(module), parameter_names(module))


class Planner:
    """What was asked for: a plan of the whole model, or one that grows by tensors whose model is unknown."""

    def __init__(
        self,
        policy: Policy,
        tensors: NamedTensors | None,
        hierarchy: Hierarchy,
        *,
        feedback: str | None,
        route: str | None,
        schedule: str | None,
        shape: Callable[[Plan], Plan] = lambda plan: plan,
    ) -> None:
        self._shape = shape  # what becomes of a plan where gradients are not one bucket after the other
        self._policy, self._nodes, self._per_node = policy, hierarchy.num_nodes, hierarchy.per_node
        self._options = {"feedback": feedback, "route": route, "schedule": schedule}
        if tensors is None:
            self.asked = Plan.empty(policy, self._nodes, schedule, self._per_node)
        else:
            self.asked = self._plan(tensors.model)
        self._whole = tensors is not None
        self.names = {} if tensors is None else dict(tensors.names)
        self._known = {entry.spec.name for entry in self.asked.entries}
        self._layouts: dict[tuple[int, ...], Layout] = {}  # by identity: DDP hands over the same tensors

    def warn(self) -> None:
        """Says which options do nothing for this model, once that is certain."""
        if self._whole:
            warn_idle(self.asked, self._policy)

    def layout(self, parameters: list[Tensor]) -> tuple[Layout, Plan | None]:
        """The layout of a bucket with these tensors end to end; a plan for those that have none yet."""
        ids = tuple(map(id, parameters))
        if ids in self._layouts:
            return self._layouts[ids], None
        specs = [Spec(self._name(p), tuple(p.shape), p.dtype) for p in parameters]
        layout = self._layouts[ids] = Layout.packed(specs)
        new = tuple(spec for spec in specs if spec.name not in self._known)
        if not new:
            return layout, None
        news = self._plan(Model(new))
        self.asked = self.asked.joined(news)
        self._known.update(spec.name for spec in new)
        return layout, news

    def _name(self, parameter: Tensor) -> str:
        """Its name in the model, else one by arrival, which is the same on all ranks."""
        return self.names.setdefault(id(parameter), f"parameter {len(self.names)}")

    def _plan(self, model: Model) -> Plan:
        plan = Plan.of(self._policy, model, self._nodes, **self._options, per_node=self._per_node)
        if plan.uses_norm and self._per_node > 1:
            raise PlanError(
                "norm=model goes by a worker's own gradient, and in a hierarchy nodes exchange: leave "
                'norm=model out, or take hierarchy="off"'
            )
        return self._shape(plan)


def plans_of_auto(policy: Policy, model: Model, nodes: Hierarchy) -> Callable[[str], Plan]:
    """The plans of an auto run: what stays dense is as the user said, codec and way are what auto takes.

    A function that holds no compressor: a autotuner must not keep alive what ends it. A plan is made once.
    """

    @functools.cache
    def plan_of(text: str) -> Plan:
        choice = Selection.of(text)
        chosen = Policy.of(choice.codec, policy.keep_dense, policy.min_numel)
        if not choice.by_nodes:
            return Plan.of(chosen, model, nodes.group.size)
        return Plan.of(chosen, model, nodes.num_nodes, per_node=nodes.per_node)

    return plan_of
