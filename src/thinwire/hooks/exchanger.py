"""An exchanger: an engine behind a worker thread, with its plan, its report, its state and its end.

DDP's compressor, FSDP2's and the exchange for any loop are three doors to it.
"""

from __future__ import annotations

import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import torch

from thinwire.clock import COMPARE, CONNECT, OUTSIDE, PLAN, TRAINING
from thinwire.errors import PlanError, StateError
from thinwire.exchange.drift import DriftCheck
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
from thinwire.hooks.planner import NamedTensors, Planner
from thinwire.kernels import pick
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Policy

Self = TypeVar("Self", bound="Exchanger")


class Exchanger(ABC):
    """The running exchange of some tensors among the ranks of a group; collective to make.

    `flat_first`: hosts are known, and nobody leads a node yet (auto decides that later). `shape`: what
    becomes of the plan where tensors do not travel whole.
    """

    def __init__(
        self,
        policy: Policy,
        group: Group,
        device: torch.device,
        tensors: NamedTensors | None,
        *,
        feedback: str | None = None,
        route: str | None = None,
        schedule: str | None = None,
        seed: int = 0,
        kernels: str | None = None,
        loss_scale: Callable[[], float] | None = None,
        hierarchy: str | int | None = "off",
        flat_first: bool = False,
        shape: Callable[[Plan], Plan] = lambda plan: plan,
    ) -> None:
        self.policy, self.group, self.device = policy, group, device
        stage = CONNECT
        try:
            self.nodes = settle(group, hierarchy, device)
            self.hierarchy = Hierarchy(group) if flat_first else self.nodes
            stage = PLAN
            planner = Planner(
                policy,
                tensors,
                self.hierarchy,
                feedback=feedback,
                route=route,
                schedule=schedule,
                shape=shape,
            )
            self._named, self._optimizer = tensors is not None, KnownOptimizer(planner.names)
            drift = self._checked(planner.asked)
            stage = CONNECT
            group.connect()
            stage = COMPARE
            self.either = (
                SwitchableNode(self.nodes, device) if self.nodes.per_node != self.hierarchy.per_node else None
            )
            self.node: Node = self.either or node_of(self.hierarchy, planner.asked, device)
            self.engine = Engine(planner.asked, self._meeting(), device, seed, pick(device, kernels))
        except Exception as error:
            explained = explain(error, stage, group)
            group.close()
            raise explained from (None if explained is error else error)
        planner.warn()
        self.queue = BucketQueue(self.engine, self.node, group, planner, self._optimizer, drift, loss_scale)
        self._release_with(self)

    def _meeting(self) -> Group:
        """Those who exchange."""
        return self.hierarchy.leaders()

    @abstractmethod
    def _checked(self, plan: Plan) -> DriftCheck:
        """Refuses what does not fit the plan, before anything is connected; what is looked at for drift."""

    @property
    def plan(self) -> Plan:
        """Every tensor's codec, error feedback and route; print it. Under auto, those in use now."""
        return self.queue.plan

    @property
    def error(self) -> Exception | None:
        """The error that ended the exchanges, or None."""
        return self.queue.worker.error

    @property
    def failed(self) -> bool:
        """Whether an exchange failed; what was closed has not."""
        return self.queue.worker.failed

    def fail(self, error: Exception, stage: str) -> Exception:
        """Ends the exchanges for an error met elsewhere; gives the one that names who is to blame for it."""
        return self.queue.fail(error, stage)

    def report(self) -> Report:
        """Bytes, ratio, seconds by stage and errors by layer, so far and on this worker."""
        return report_of(self.engine, self.node, self.queue.plan, *self._described())

    def _described(self) -> tuple[str, str]:
        """What the codec is called, and why it was taken if somebody else than the user took it."""
        return str(self.policy.rest), ""

    def state_dict(self, *, gather: bool = False) -> dict[str, Any]:
        """What to save: this rank's own state, or with `gather` (collective) that of all ranks.

        Bytes without code, for `torch.save` and for torch.distributed.checkpoint, to which this is a
        Stateful: `dcp.save({"compressor": compressor, ...})` saves each rank's own.
        """
        self._want_names("state_dict")

        def job() -> dict[str, Any]:
            if gather:
                self.queue.call_roll("state_dict(gather=True)")
            return self.node.state(self.engine, gather)

        return sealed(self._saved(self.queue.worker.call(job)), self.group.rank)

    def load_state_dict(self, state: Mapping[str, Any], *, strict: bool = True) -> NotTaken:
        """Goes on where `state` was taken; refuses the state of another model, codec, version or rank.

        `strict`: if False (layers were frozen since, or thawed, or have another codec) it takes what fits
        and returns the names of what it did not take, as torch's modules do.
        """
        self._want_names("load_state_dict")
        self.queue.worker.call(lambda: None)  # what was observed before must not come after
        state = opened(state, self.group.rank)
        self._load_beside(state)
        not_taken = self.node.load(self.engine, state, strict)
        self.group.announce(f"load_state_dict (of step {self.engine.step})")
        return not_taken

    def _saved(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of the engine, with what else must be saved."""
        return state

    def _load_beside(self, state: Mapping[str, Any]) -> None:
        """Takes what `_saved` added, before the engine takes the rest."""
        if isinstance(state, Mapping) and "auto" in state:
            raise StateError('the state is of an auto run, this compressor is not: pass codec="auto"')

    def close(self) -> None:
        """Ends threads and connections; call it, or leave a `with` block, after the last step.

        Exchanges that are queued are finished; `report` still works, a later exchange does not. Twice is no
        error. What was collected has closed itself.
        """
        self._optimizer.forget()
        self.queue.worker.close()

    def __reduce__(self) -> tuple[type[Detached], tuple[()]]:
        """Copies of a model are not compressed: connections cannot be copied, let alone saved."""
        return Detached, ()

    def __enter__(self: Self) -> Self:
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


class Detached:
    """Stands where the original has its compressor. A copy that is to be compressed gets one of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PlanError(
            "this is a copy of a compressed model or of its compressor, and exchanges nothing: call "
            "compress(copy, ...) if the copy is to be trained with compressed gradients"
        )
