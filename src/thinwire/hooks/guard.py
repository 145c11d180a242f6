"""A guard around DDP's own collectives: an error that a dead peer causes there names the peer too."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from thinwire.clock import OUTSIDE
from thinwire.groups.torch import hang_up, on_the_wire
from thinwire.hooks.compressor import Compressor
from thinwire.hooks.copies import leave_out

# Where DDP rebuilds its buckets (in the second step), broadcasts buffers and tells joined ranks of a step.
_GUARDED = ("_pre_forward", "_post_forward")


def guard(model: DistributedDataParallel, compressor: Compressor) -> None:
    """From now on what DDP's forward pass meets on the wire is explained like a failed exchange."""
    for name in _GUARDED:
        setattr(model, name, Guarded(model, name, compressor))
    leave_out(model, _GUARDED, compressor)  # in copies of the model


class Guarded:
    """A method of one model that explains errors of its collectives; it holds nobody, the model holds it."""

    def __init__(self, model: DistributedDataParallel, name: str, compressor: Compressor) -> None:
        self._model, self._name, self._compressor = weakref.ref(model), name, weakref.ref(compressor)

    def __call__(self, *inputs: Any, **kwargs: Any) -> Any:
        model, compressor = self._model(), self._compressor()
        act: Callable[..., Any] = getattr(type(model), self._name)
        if compressor is not None and compressor.failed and _waits(model, compressor):
            compressor.raise_error()  # nobody will come: this rank has told its peers that it failed
        try:
            with _listening(model, compressor):
                return act(model, *inputs, **kwargs)
        except RuntimeError as error:
            broken = on_the_wire(error)
            if compressor is None or model is None or not (compressor.failed or broken):
                raise
            if broken:
                hang_up(model.process_group)  # no peer shall wait for this rank in it
            raise compressor.fail(error, OUTSIDE) from error


def _listening(
    model: DistributedDataParallel | None, compressor: Compressor | None
) -> AbstractContextManager[None]:
    """While DDP's forward pass waits for others, somebody listens to them."""
    if model is None or compressor is None or compressor.error is not None:
        return nullcontext()
    return compressor.listening(model.process_group) if _waits(model, compressor) else nullcontext()


def _waits(model: DistributedDataParallel | None, compressor: Compressor) -> bool:
    """Whether DDP's forward pass waits for others: it broadcasts buffers, or rebuilds its buckets."""
    if model is None:
        return False
    syncs: bool = model.will_sync_module_buffers()  # type: ignore[no-untyped-call]
    return syncs or compressor.engine.step <= 2
