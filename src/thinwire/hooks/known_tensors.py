"""What a compressor knows of the tensors that come in buckets: their names, and where they lie."""

from __future__ import annotations

from torch import Tensor, nn

from thinwire.plans.model import parameter_names
from thinwire.tensors.layout import Layout
from thinwire.tensors.spec import Spec


class KnownTensors:
    """By identity: DDP hands over the same tensors in every step, and lays them out anew at times."""

    def __init__(self, module: nn.Module | None) -> None:
        self.names = {} if module is None else parameter_names(module)
        self.named = module is not None
        self._layouts: dict[tuple[int, ...], Layout] = {}

    def layout(self, parameters: list[Tensor]) -> Layout:
        """Of a bucket with these tensors, one behind the other."""
        ids = tuple(map(id, parameters))
        if ids not in self._layouts:
            self._layouts[ids] = Layout.packed(
                Spec(self._name(p), tuple(p.shape), p.dtype) for p in parameters
            )
        return self._layouts[ids]

    def _name(self, parameter: Tensor) -> str:
        """Its name in the model, else one by arrival, which is the same on all ranks."""
        return self.names.setdefault(id(parameter), f"parameter {len(self.names)}")
