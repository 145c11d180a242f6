"""A guard around DDP's own collectives names the peer at fault there too; copies of the model lose it."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from thinwire.clock import OUTSIDE
from thinwire.errors import PlanError
from thinwire.groups.torch import hang_up, on_the_wire
from thinwire.hooks.compressor import Compressor

# Where DDP rebuilds its buckets (in the second step), broadcasts buffers and tells joined ranks of a step.
_GUARDED = ("_pre_forward", "_post_forward")
_GETSTATE = "__getstate__"


def guard(model: DistributedDataParallel, compressor: Compressor) -> None:
    """From now on what DDP's forward pass meets on the wire is explained like a failed exchange."""
    for name in _GUARDED:
        setattr(model, name, Guarded(model, name, compressor))
    leave_out(model, _GUARDED, compressor)  # in copies of the model


def refuse_nested(model: DistributedDataParallel) -> None:
    """Raises if a part of the model is DDP too, which would exchange gradients before its whole does."""
    if any(isinstance(module, DistributedDataParallel) for module in model.module.modules()):
        raise PlanError(
            "this model is wrapped twice, so its gradients would be exchanged twice, once as they are: give "
            "the plain net to DistributedDataParallel, or to the framework that wraps it"
        )


class Guarded:
    """A method of one model that explains errors of its collectives; it holds nobody, the model holds it."""

    def __init__(self, model: DistributedDataParallel, name: str, compressor: Compressor) -> None:
        self._model, self._name, self._compressor = weakref.ref(model), name, weakref.ref(compressor)

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        model, compressor = self._model(), self._compressor()
        original: Callable[..., Any] = getattr(type(model), self._name)
        if model is None or compressor is None:
            return original(model, *inputs, **kwargs)
        queue = compressor.queue
        waits = _waits(model, queue.engine.step)
        if waits and queue.worker.failed:
            queue.raise_error()  # nobody will come: this rank has told its peers that it failed
        listening = waits and queue.worker.error is None
        try:
            with queue.listening(model.process_group) if listening else nullcontext():
                return original(model, *inputs, **kwargs)
        except RuntimeError as error:
            broken = on_the_wire(error)
            if not (queue.worker.failed or broken):
                raise
            if broken:
                hang_up(model.process_group)  # no peer shall wait for this rank in it
            raise queue.fail(error, OUTSIDE) from error


def _waits(model: DistributedDataParallel, step: int) -> bool:
    """Whether DDP's forward pass waits for others: it broadcasts buffers, or rebuilds its buckets."""
    syncs: bool = model.will_sync_module_buffers()  # type: ignore[no-untyped-call]
    return syncs or step <= 2


def leave_out(model: DistributedDataParallel, names: Sequence[str], compressor: object) -> None:
    """Copies of this model do not get these attributes, nor the hook of this compressor."""
    setattr(
        model, _GETSTATE, _CopiedState(model, names, compressor)
    )  # an instance's own: copy and pickle ask it


class _CopiedState:
    """What copies are made of; the model holds it, it holds nobody."""

    def __init__(self, model: DistributedDataParallel, names: Sequence[str], compressor: object) -> None:
        self._model, self._compressor = weakref.ref(model), weakref.ref(compressor)
        self._names = (*names, _GETSTATE)

    def __call__(self) -> dict[str, Any]:
        model = self._model()
        getstate: Any = getattr(type(model), _GETSTATE)
        state: dict[str, Any] = {k: v for k, v in getstate(model).items() if k not in self._names}
        hooks = state.get("_comm_hooks", [])
        state["_comm_hooks"] = [(hook, owner) for hook, owner in hooks if owner is not self._compressor()]
        return state
