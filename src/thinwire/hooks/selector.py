"""The selector of an auto run: by which codec each step goes, and what happens if a mean is not finite."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from thinwire.auto.autotuner import Autotuner
from thinwire.auto.qualities import DENSE
from thinwire.devices import is_finite
from thinwire.errors import StateError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.nodes import Node
from thinwire.groups.base import Group
from thinwire.tensors import Layout, Scratch


@dataclass(frozen=True)
class RawGradients:
    """The gradients of a bucket, to be had once more after an exchange has written over them.

    DDP copies them into its bucket and leaves them in the parameters until all means are there. Where it does
    not (gradient_as_bucket_view=True, a rank that has run out of inputs) they must be copied: `sources` is
    None.
    """

    buffer: Tensor
    views: Sequence[Tensor]  # of the buffer, tensor by tensor
    sources: Sequence[Tensor] | None

    @classmethod
    def of(cls, buffer: Tensor, views: Sequence[Tensor], parameters: Sequence[Tensor]) -> RawGradients:
        """Without `views` nothing is known of where the bucket came from."""
        own = buffer.untyped_storage().data_ptr()
        sources = []
        for view, parameter in zip(views, parameters, strict=False):
            source = parameter.grad
            if (
                source is None
                or (source.dtype, source.shape) != (view.dtype, view.shape)
                or source.untyped_storage().data_ptr() == own
            ):
                return cls(buffer, views, None)
            sources.append(source.detach())
        return cls(buffer, views, sources if sources else None)

    def copied(self, scratch: Scratch) -> RawGradients:
        """With a copy of what nobody else has."""
        if self.sources is not None:
            return self
        copy = scratch.take("raw gradients", self.buffer.nbytes).view(self.buffer.dtype)
        return RawGradients(self.buffer, [self.buffer], [copy.copy_(self.buffer)])

    def restore(self) -> None:
        """Puts them back into the bucket."""
        for view, source in zip(self.views, self.sources or (), strict=True):
            view.copy_(source)


class Safeguard:
    """Exchanges of an auto run. A bucket whose mean is not finite is sent again, as it is:

    1. the raw gradients are put back, divided by N and added up by an all-reduce of all workers, as DDP does
    2. if that mean is not finite either, some rank's gradients are not: it stays, nobody is to blame
    3. else it takes the place of the other one, nothing of that exchange is committed, and the codec is at
       fault; unless something left of a codec before it had joined: then that is dropped, for good

    The means have the same bits on all ranks, so all of them send again, and blame the same.
    """

    def __init__(self, engine: Engine, node: Node, everybody: Group) -> None:
        self._engine, self._node, self._everybody = engine, node, everybody
        self._scratch = Scratch(engine.context.device)
        self.flawed = False  # a codec was at fault since somebody last asked

    def exchange(self, bucket: Bucket, raw: RawGradients) -> None:
        """Replaces the gradients in a bucket by their means over all workers."""
        raw, owed = raw.copied(self._scratch), self._node.owes(self._engine)
        self._node.exchange(self._engine, bucket)
        if is_finite(bucket.buffer):
            return
        raw.restore()
        self._send_plain(bucket.buffer)
        finite = is_finite(bucket.buffer)
        self._engine.take_back(bucket.layout, finite)
        if finite and owed:
            self._engine.pending_residual.drop()
        elif finite:
            self.flawed = True

    def asked(self) -> bool:
        """Whether a codec was at fault since this was last asked."""
        flawed, self.flawed = self.flawed, False
        return flawed

    def _send_plain(self, buffer: Tensor) -> None:
        engine, meter = self._engine, self._engine.group
        with engine.clock.time("travel"), meter.aside(), meter.turned_to(self._everybody):
            meter.all_reduce(buffer.mul_(1 / self._everybody.size)).wait()


class AutoSelector:
    """What the autotuner takes. The first bucket of a step may switch the codec, on all ranks alike.

    `can_pass`: whether the buckets of the step that begins could go DDP's own way. `layouts` are those of the
    buckets of this step so far, which the autotuner's actions sees too.
    """

    passes = False  # whether the buckets of this step go DDP's own way

    def __init__(
        self,
        autotuner: Autotuner,
        safeguard: Safeguard,
        layouts: list[Layout],
        can_pass: Callable[[], bool],
        about_quality: str = "",
    ) -> None:
        self.autotuner, self.layouts, self._can_pass = autotuner, layouts, can_pass
        self._safeguard, self._about_quality = safeguard, about_quality

    @property
    def decided(self) -> bool:
        """Whether the codec is decided."""
        return self.autotuner.decided

    @property
    def explanation(self) -> str:
        """What was decided and why."""
        about = f"auto: {self._about_quality}" if self._about_quality else ""
        return "\n".join(filter(None, [about, self.autotuner.explanation]))

    def bucket_ready(self, is_first: bool) -> None:
        """A bucket of a step is ready, of which nothing has been sent."""
        if not is_first:
            self.autotuner.pace.ready(time.perf_counter())
            return
        if self._safeguard.asked():  # all exchanges of the step before are over
            self.autotuner.veto()
        self.autotuner.begin_step(time.perf_counter())
        self.layouts.clear()
        self.passes = self.autotuner.codec == DENSE and self._can_pass()

    def exchange(self, bucket: Bucket, raw: RawGradients) -> None:
        """Replaces the gradients in a bucket by their means over all workers."""
        self._safeguard.exchange(bucket, raw)

    def end_backward(self) -> None:
        """The backward pass has all its means."""
        self.autotuner.pace.end(time.perf_counter())

    def saved(self, state: dict[str, Any]) -> dict[str, Any]:
        """The state of an engine, with what an auto run needs to go on."""
        return {**state, "auto": self.autotuner.state_dict()}

    def load(self, state: Mapping[str, Any]) -> None:
        """Takes its part of a state, before the engine takes the rest."""
        if not isinstance(state, Mapping) or "auto" not in state:
            raise StateError("the state is not of an auto run: pass the codec that it was made with")
        self.autotuner.load(state["auto"])
