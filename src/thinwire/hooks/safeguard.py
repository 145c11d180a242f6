"""The safeguard of an auto run: a mean that is not finite where plain DDP's is never reaches the weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from thinwire.exchange.bucket import Bucket
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Node
from thinwire.groups.base import Group
from thinwire.memories.base import is_finite
from thinwire.tensors.scratch import Scratch


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
    3. else it takes the place of the other one, nothing of that exchange is believed, and the codec is at
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
            self._engine.leftover.drop()
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
