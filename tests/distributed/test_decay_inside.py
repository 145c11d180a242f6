"""Weight decay as TernGrad's code has it (papers.md): an L2 term in the loss travels compressed."""

from __future__ import annotations

import torch
from launch import Teams
from torch import Tensor
from training import batch, loss_of, mlp, wrap

from thinwire.exchange.engine import Bucket, Engine

DECAY = 0.1


def met_and_expected() -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """What the exchange meets, and the gradient of the plain net plus DECAY w."""
    met: dict[str, Tensor] = {}
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None

        def seen(engine: Engine, bucket: Bucket) -> None:
            for name, piece in zip(bucket.layout.names, bucket.layout.slices, strict=True):
                met[name] = bucket.buffer[piece].clone()
            engine.exchange(bucket)

        it.compressor.node.exchange = seen  # type: ignore[method-assign]
        norm = sum((w.square().sum() for w in it.model.module.parameters()), torch.zeros(()))
        (loss_of(it.model(batch(0, 20))) + DECAY / 2 * norm).backward()
    plain = mlp()
    loss_of(plain(batch(0, 20))).backward()
    gradients = {name: w.grad for name, w in plain.named_parameters() if w.grad is not None}
    return met, {name: (gradients[name] + DECAY * w).flatten() for name, w in plain.named_parameters()}


def test_an_l2_term_in_the_loss_is_decay_inside(teams: Teams) -> None:
    for met, expected in teams(2).run(met_and_expected):
        assert met.keys() == expected.keys()
        for name, gradient in expected.items():
            torch.testing.assert_close(met[name], gradient)
