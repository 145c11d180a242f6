"""The wait of a step: from the moment this rank's last gradient is ready until all of them have travelled."""

from __future__ import annotations

import time

from torch import Tensor, nn


class GradientWait:
    """What is left of a step without it is computing: the forward and backward pass and the update.

    Gradients tell when they are ready, before DDP takes them; `end` is called when the backward pass returns.
    """

    def __init__(self, net: nn.Module) -> None:
        self.seconds = 0.0  # of the step that ended last
        self._ready = time.perf_counter()
        for parameter in net.parameters():
            if parameter.requires_grad:
                parameter.register_post_accumulate_grad_hook(self._note)  # type: ignore[no-untyped-call]

    def _note(self, parameter: Tensor) -> None:
        self._ready = time.perf_counter()

    def end(self) -> None:
        """The backward pass has returned: the gradients of all ranks are here."""
        self.seconds = time.perf_counter() - self._ready
