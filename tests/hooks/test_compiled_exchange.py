"""An exchange in a compiled graph: one operator, no break, the same means."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import thinwire as tw
from thinwire.groups.thread import ThreadGroup
from thinwire.hooks.exchange import exchange_mean


def gradient(seed: int = 0) -> Tensor:
    return torch.randn(40, 33, generator=torch.Generator().manual_seed(seed))


def test_opcheck() -> None:
    with tw.Exchange({"w": gradient()}, "bf16", ThreadGroup.make(1)[0]) as exchange:
        torch.library.opcheck(exchange_mean, ([gradient()], [0], exchange.number))


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_graph_does_not_break(backend: str) -> None:
    with tw.Exchange({"w": gradient()}, "qsgd:4", ThreadGroup.make(1)[0]) as exchange:

        def step(x: Tensor) -> Tensor:
            g = x * 2
            exchange.mean_({"w": g})
            return g + 1

        compiled: Callable[[Tensor], Tensor] = torch.compile(step, fullgraph=True, backend=backend)
        found = [compiled(gradient(seed)) for seed in range(2)]
    with tw.Exchange({"w": gradient()}, "qsgd:4", ThreadGroup.make(1)[0]) as exchange:
        for seed in range(2):
            g = gradient(seed) * 2
            exchange.mean_({"w": g})
            assert torch.equal(found[seed], g + 1)
