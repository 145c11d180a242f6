"""Encoding and travelling overlap the backward pass, on a thread of their own."""

from __future__ import annotations

import threading

from failing import in_backward_of
from launch import Teams
from torch import Tensor
from training import batch, loss_of, mlp, wrap

from thinwire.exchange.engine import Bucket, Engine

PATIENCE_S = 200.0


def events() -> list[str]:
    """The first bucket's exchange does not end before the backward pass has reached the first layer.

    If the backward pass waited for exchanges, neither would ever go on: the exchange gives up after a while.
    """
    happened: list[str] = []
    reached = threading.Event()
    with wrap(mlp(), "terngrad") as it:
        assert it.compressor is not None
        loss_of(it.model(batch(0, 20))).backward()  # the buckets are rebuilt after it

        def slow_exchange(engine: Engine, bucket: Bucket) -> None:
            happened.append(f"exchange begins on {threading.current_thread().name}")
            if not reached.wait(PATIENCE_S):
                raise TimeoutError("the backward pass waits for the exchange")
            engine.exchange(bucket)
            happened.append("exchange ends")

        def on_first_layer(gradient: Tensor) -> None:
            while not happened:  # the worker thread may take a moment to begin
                threading.Event().wait(0.001)
            happened.append("backward reaches the first layer")
            reached.set()

        it.compressor.node.exchange = slow_exchange  # type: ignore[method-assign]
        in_backward_of(it.model.module, on_first_layer)
        loss_of(it.model(batch(1, 20))).backward()
        happened.append("backward is over")
    return happened


def test_backward_goes_on_while_the_first_bucket_travels(teams: Teams) -> None:
    for happened in teams(2).run(events):
        first, second, *rest, last = happened
        assert first == "exchange begins on thinwire"
        assert second == "backward reaches the first layer"
        assert rest.count("exchange ends") >= 2
        assert last == "backward is over"
