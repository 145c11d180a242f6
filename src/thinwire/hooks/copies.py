"""What copies of a compressed model get (deepcopy, torch.save): plain DDP, nothing of the original."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from torch.nn.parallel import DistributedDataParallel

from thinwire.errors import PlanError

_GETSTATE = "__getstate__"


class Detached:
    """Stands where the original has its compressor. A copy that is to be compressed gets one of its own."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        raise PlanError(
            "this is a copy of a compressed model or of its compressor, and exchanges nothing: call "
            "compress(copy, ...) if the copy is to be trained with compressed gradients"
        )


def leave_out(model: DistributedDataParallel, names: Sequence[str], compressor: object) -> None:
    """Copies of this model do not get these attributes, nor the hook of this compressor."""
    setattr(model, _GETSTATE, _State(model, names, compressor))  # an instance's own: copy and pickle ask it


class _State:
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
