"""The exchange for any loop: named tensors become their means over all ranks."""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

from thinwire.clock import PREPARE
from thinwire.codecs.catalog import AUTO
from thinwire.codecs.codec import CodecLike
from thinwire.errors import PlanError
from thinwire.exchange.drift import CHECK_EVERY, DriftCheck
from thinwire.groups.base import Group
from thinwire.groups.torch import TorchGroup
from thinwire.groups.wrappers import Emulated, Link
from thinwire.hooks.exchanger import Exchanger
from thinwire.hooks.planner import NamedTensors
from thinwire.plans.plan import Plan
from thinwire.plans.policy import MIN_NUMEL, Model, Policy
from thinwire.tensors import Spec

Named = Mapping[str, Tensor] | Iterable[tuple[str, Tensor]]
LARGE = 1 << 20  # elements of a tensor that is not worth copying
KEEP_DENSE = ("vector", "small")  # what a tensor without a model can be


class Exchange(Exchanger):
    """The means of named tensors over all ranks, in few bits, for loops that own their gradients.

    - `named_tensors`: what is exchanged, by name; the same names, shapes and dtypes on every rank.
    - `codec`: a codec or rules by name, as for `compress`; not "auto", which measures a backward pass.
    - `group`: a process group of torch.distributed; None: all ranks.
    - `feedback`, `route`, `schedule`, `keep_dense`, `min_numel`, `sensitive`, `seed`, `kernels`, `hierarchy`,
      `link`, `total_steps`: as for `compress`; a step is one `mean_`.
    - `same`: tensors that must have the same bits on all ranks, by name, such as parameters; they are
      compared every `check_every` steps, and `on_drift` says what happens if they differ.

    Collective: every rank makes it, and every rank calls `mean_` (or `start`) equally often.

    >>> exchange = Exchange({"w": gradient}, "qsgd:4")       # doctest: +SKIP
    >>> exchange.mean_()                                     # doctest: +SKIP
    """

    def __init__(
        self,
        named_tensors: Named,
        codec: CodecLike | Mapping[str, CodecLike],
        group: dist.ProcessGroup | Group | None = None,
        *,
        feedback: str | None = None,
        route: str | None = None,
        schedule: str | None = None,
        keep_dense: str | Iterable[str] = KEEP_DENSE,
        min_numel: int = MIN_NUMEL,
        seed: int = 0,
        kernels: str | None = None,
        hierarchy: str | int = "off",
        link: Link | None = None,
        total_steps: int | None = None,
        sensitive: CodecLike | None = None,
        same: Named = (),
        check_every: int = CHECK_EVERY,
        on_drift: str = "raise",
    ) -> None:
        self.number = next(_numbers)  # by which a compiled graph names it
        _exchanges[self.number] = self
        self._tensors, self._same = _named(named_tensors), (list(_pairs(same)), check_every, on_drift)
        if codec == AUTO:
            raise PlanError(
                'codec="auto" measures the backward pass of a DDP model, and an Exchange has none: name a '
                'codec, for example "qsgd:4"'
            )
        meeting = group if isinstance(group, Group) else TorchGroup(group)
        specs = {name: _spec(name, tensor) for name, tensor in self._tensors.items()}
        names = {id(tensor): name for name, tensor in self._tensors.items()}
        self._specs, self._underway = specs, list[tuple[dict[str, Tensor], Tensor]]()
        self._arrived = threading.Event()
        self._buffers: dict[tuple[torch.dtype, int], Tensor] = {}
        super().__init__(
            Policy.of(codec, keep_dense, min_numel, total_steps, sensitive),
            meeting if link is None else Emulated(meeting, link),
            next(iter(self._tensors.values())).device,
            NamedTensors(Model(tuple(specs.values())), names),
            feedback=feedback,
            route=route,
            schedule=schedule,
            seed=seed,
            kernels=kernels,
            hierarchy=hierarchy,
        )

    def _checked(self, plan: Plan) -> DriftCheck:
        named, every, on_drift = self._same
        return DriftCheck(self.group, named, every if named else 0, on_drift, frozen_too=True)

    def mean_(self, tensors: Named | None = None) -> None:
        """Replaces the tensors by their means over all ranks; collective.

        `tensors`: others under the same names, all or some of them; None: those that it was made with.
        torch.compile keeps it as one operator of its graph.
        """
        if torch.compiler.is_compiling():
            given = self._tensors if tensors is None else dict(_pairs(tensors))
            known = list(self._tensors)
            exchange_mean(list(given.values()), [known.index(name) for name in given], self.number)
            return
        self.start(tensors)
        self.wait()

    def start(self, tensors: Named | None = None, called: str = "Exchange.mean_ (or start)") -> None:
        """Begins `mean_` and returns: what the tensors hold now is sent while the caller computes.

        Do not touch them before `wait`: large ones are sent from where they lie, and become means there.

        `called`: what errors call it, if a rank does not come, or comes to something else.
        """
        if self._underway:
            raise PlanError("start() was called twice: call wait() before the next start() or mean_()")
        given = self._tensors if tensors is None else dict(_pairs(tensors))
        try:
            self._check(given)
        except PlanError as error:  # the others must not wait for this rank
            raise self.fail(error, PREPARE) from None
        self._arrived = arrived = threading.Event()
        queue = self.queue
        queue.worker.submit(lambda: queue.call_roll(called), lambda: None)
        chosen = _buckets(given)
        for number, names in enumerate(chosen):
            last = number == len(chosen) - 1
            flat = self._flat([given[name].detach().reshape(-1) for name in names])
            self._underway.append(({name: given[name] for name in names}, flat))
            own: list[Tensor] = [self._tensors[name] for name in names]
            queue.exchange(flat, own, last, arrived.set if last else lambda: None)

    @torch.no_grad()
    def wait(self) -> None:
        """Until the means that `start` began are in their tensors; raises what ended the exchange."""
        if not self._underway:
            raise PlanError("wait() without start(): call start() first, or mean_(), which is both")
        self._arrived.wait()
        underway, self._underway = self._underway, []
        self.queue.raise_error()
        self.queue.worker.follow()
        for tensors, flat in underway:
            sizes = [tensor.numel() for tensor in tensors.values()]
            for tensor, mean in zip(tensors.values(), torch.split(flat, sizes), strict=True):
                if mean.data_ptr() != tensor.data_ptr():
                    tensor.copy_(mean.view_as(tensor))

    def _flat(self, parts: list[Tensor]) -> Tensor:
        """The tensors end to end: one alone as it lies, several in a buffer that is used again."""
        if len(parts) == 1 and parts[0].is_contiguous():
            return parts[0]
        key = parts[0].dtype, sum(part.numel() for part in parts)
        if key not in self._buffers:
            self._buffers[key] = parts[0].new_empty(key[1])
        return torch.cat(parts, out=self._buffers[key])

    def _check(self, given: Mapping[str, Tensor]) -> None:
        """Tensors under other names, or that have changed, are refused."""
        if not given:
            raise PlanError("there are no tensors to exchange: pass at least one, on every rank the same")
        for name, tensor in given.items():
            if name not in self._specs:
                known = ", ".join(list(self._specs)[:3])
                raise PlanError(f'this exchange has no tensor "{name}": it was made with {known}, ...')
            if _spec(name, tensor) != self._specs[name]:
                raise PlanError(
                    f"{name} has changed: this exchange was made for {self._specs[name]}, and it is "
                    f"{_spec(name, tensor)} now; make a new Exchange for tensors of other shapes"
                )


# A graph holds numbers, not objects: these find the exchange again. It is gone when its owner drops it.
_numbers = itertools.count()
_exchanges: weakref.WeakValueDictionary[int, Exchange] = weakref.WeakValueDictionary()


@torch.library.custom_op("thinwire::exchange_mean", mutates_args=("tensors",))
def exchange_mean(tensors: list[Tensor], places: list[int], number: int) -> None:
    """The tensors become their means over all ranks, by the exchange of that number.

    `places`: of their names among those that the exchange was made with.
    """
    exchange = _exchanges[number]
    names = list(exchange._tensors)
    exchange.mean_({names[place]: tensor for place, tensor in zip(places, tensors, strict=True)})


@exchange_mean.register_fake
def _(tensors: list[Tensor], places: list[int], number: int) -> None:
    """Shapes, dtypes and devices stay what they are."""


def _pairs(tensors: Named) -> Iterator[tuple[str, Tensor]]:
    yield from tensors.items() if isinstance(tensors, Mapping) else tensors


def _named(tensors: Named) -> dict[str, Tensor]:
    """The tensors by name; what cannot be exchanged is refused."""
    found: dict[str, Tensor] = {}
    for name, tensor in _pairs(tensors):
        if name in found:
            raise PlanError(f'two tensors are called "{name}": give every tensor a name of its own')
        if not isinstance(tensor, Tensor):
            raise PlanError(f"{name} is a {type(tensor).__name__}: an Exchange takes tensors by name")
        if tensor.is_sparse:
            raise PlanError(f"{name} is sparse, which cannot be compressed: pass {name}.to_dense()")
        found[name] = tensor
    if len({id(tensor) for tensor in found.values()}) < len(found):
        raise PlanError("one tensor has several names: give every tensor once, under one name")
    if not found:
        raise PlanError("an Exchange needs at least one tensor: pass names with tensors")
    devices = {tensor.device for tensor in found.values()}
    if len(devices) > 1:
        raise PlanError(f"tensors are on {', '.join(sorted(map(str, devices)))}: make an Exchange for each")
    return found


def _spec(name: str, tensor: Tensor) -> Spec:
    return Spec(name, tuple(tensor.shape), tensor.dtype)


def _buckets(tensors: Mapping[str, Tensor]) -> Sequence[list[str]]:
    """What is sent together: a large tensor alone, from where it lies, and the others of each dtype."""
    found: dict[object, list[str]] = {}
    for name, tensor in tensors.items():
        key: object = name if tensor.numel() >= LARGE else tensor.dtype
        found.setdefault(key, []).append(name)
    return list(found.values())
