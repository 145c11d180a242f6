"""DiLoCo: every rank makes local steps, and only their sum is exchanged now and then, in few bits."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch import Tensor, nn

from thinwire.clock import COMPARE
from thinwire.codecs.codec import CodecLike
from thinwire.devices import is_finite
from thinwire.errors import PlanError, StateError
from thinwire.exchange.packing import pack_state, unpack_state
from thinwire.exchange.report import Report
from thinwire.groups.base import Group
from thinwire.hooks.exchange import KEEP_DENSE, Exchange
from thinwire.hooks.worker import call_measuring
from thinwire.perf.local_steps import fewest_local_steps
from thinwire.plans.plan import Plan
from thinwire.plans.policy import parameter_names

SHARED = "outer state of local steps"  # the key in saved states: the same on all ranks
AUTO: Literal["auto"] = "auto"
FIRST_ROUND = 10  # local steps of the first round of every="auto"


class DiLoCo:
    """Local steps by any optimizer; every `every` of them the ranks exchange what they have learnt:

    1. D = theta_0 - theta                the pseudo-gradient: where `every` local steps have led
    2. mean D over the ranks              by any codec, with its error feedback
    3. v = m v + D; theta_0 -= lr (D + m v)      Nesterov, the outer step; m = 0: theta_0 -= lr D
    4. theta = theta_0                    all ranks go on from the same parameters

    - `model`: its trainable parameters are exchanged; those of the first rank are taken by all at the start.
    - `every`: local steps of a round, H; the same on all ranks. "auto": as few as keep exchanges below a
      tenth of the time, measured in every round and agreed on by all ranks.
    - `codec`: as for `Exchange`; "sparseloco" with outer_lr=1, outer_momentum=0 is SparseLoCo.
    - `outer_lr`, `outer_momentum`: of the outer step, lr and m.
    - `fragments`: the tensors in so many parts, which are exchanged in turn within a round (streaming).
    - `overlap`: local steps that are made while a fragment travels. Then theta = mix theta + (1 - mix)
      theta_0, so that these steps are not lost; `mix` is 0.5 by default.
    - `group`, `feedback`, `keep_dense`, `seed` and further options: as for `Exchange`.

    Buffers (running statistics of norms) stay each rank's own. Memory: three copies of the parameters.
    Douillard et al., "DiLoCo", 2023; "Streaming DiLoCo", 2025; Sarfi et al., "SparseLoCo", 2025.

    >>> diloco = DiLoCo(net, every=30, codec="qsgd:4")        # doctest: +SKIP
    >>> loss.backward(); optimizer.step(); diloco.step()      # doctest: +SKIP
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        every: int | Literal["auto"],
        codec: CodecLike | Mapping[str, CodecLike] = "qsgd:4",
        group: dist.ProcessGroup | Group | None = None,
        outer_lr: float = 0.7,
        outer_momentum: float = 0.9,
        fragments: int = 1,
        overlap: int = 0,
        mix: float = 0.5,
        keep_dense: str | Sequence[str] = KEEP_DENSE,
        clock: Callable[[], float] = time.perf_counter,
        **options: Any,
    ) -> None:
        _check(every, outer_lr, outer_momentum, fragments, overlap, mix)
        names = parameter_names(model)
        self._parameters = {names[id(p)]: p for p in model.parameters() if p.requires_grad}
        if len(self._parameters) < fragments:
            raise PlanError(
                f"fragments={fragments} are more than the {len(self._parameters)} tensors of the model"
            )
        self.adapts = every == AUTO
        self.every, self.overlap, self.mix = FIRST_ROUND if every == AUTO else every, overlap, mix
        self.outer_lr, self.outer_momentum = outer_lr, outer_momentum
        self.local_steps = 0
        self._clock, self._counted_from = clock, 0  # the local step from which rounds of `every` are counted
        self._fragments = _balanced(self._parameters, fragments)
        self._start = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._momentum: dict[str, Tensor] = {}
        self._deltas = {name: torch.empty_like(t) for name, t in self._start.items()}
        self._sent: int | None = None  # the fragment on its way
        self.exchange = Exchange(
            self._deltas, codec, group, keep_dense=keep_dense, same=self._start, **options
        )
        self._meet()
        self._began_s = clock()

    def step(self) -> bool:
        """Call it behind every `optimizer.step()`; True if parameters of other ranks were taken up.

        Collective when a round (or a fragment's turn) ends: a rank that does not come is named.
        """
        self.local_steps += 1
        place = (self.local_steps - self._counted_from) % self.every
        local_s = self._clock() - self._began_s
        took = False
        if self._sent is not None and place == (self._turn(self._sent) + self.overlap) % self.every:
            self._take(self._sent, self.mix)
            took = True
        for fragment in range(len(self._fragments)):
            if place == self._turn(fragment):
                self._send(fragment)
                if not self.overlap:
                    self._take(fragment)
                    took = True
        if took and self.adapts:
            self._adapt(local_s / self.every, self._clock() - self._began_s - local_s)
        return took

    def sync(self) -> None:
        """Ends the round now, at the end of training or before evaluating: all ranks get the same parameters.

        Collective. The turns of later rounds stay where they are.
        """
        if self._sent is not None:
            self._take(self._sent, self.mix)
        if self.synced:
            return
        for fragment in range(len(self._fragments)):
            self._send(fragment)
            self._take(fragment)

    @property
    def plan(self) -> Plan:
        """Every tensor's codec, error feedback and route, with the exact bytes of a round."""
        return self.exchange.plan

    @property
    def synced(self) -> bool:
        """Whether this rank's parameters are those of all ranks: the best time to save or to evaluate."""
        whole = (self.local_steps - self._counted_from) % self.every == 0
        return len(self._fragments) == 1 and not self.overlap and whole

    def report(self) -> Report:
        """Bytes, ratio and seconds of the exchanges; a step of the report is one exchange, not a local step.

        Against DDP a round sends `every` times fewer messages: `report().ratio * every` times fewer bytes.
        """
        return self.exchange.report()

    def state_dict(self, *, gather: bool = False) -> dict[str, Any]:
        """Outer parameters and momentum, the round, the exchange's state (with `gather` of all ranks).

        Parameters and the inner optimizer are each rank's own between two rounds: save those of every rank,
        or save when `synced`.
        """
        if self._sent is not None:
            raise StateError(
                f"fragment {self._sent} is on its way: save after {self.overlap} more local steps at the "
                "latest, when step() has returned True"
            )
        shared = {"steps": self.local_steps, "start": self._start, "momentum": self._momentum}
        shared |= {"settings": self._settings(), "round": [self.every, self._counted_from]}
        return {**self.exchange.state_dict(gather=gather), SHARED: pack_state(shared)}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Goes on where `state` was taken, with another number of ranks too if it was gathered."""
        if not isinstance(state, Mapping) or SHARED not in state:
            raise StateError("this is no state of local steps: pass what DiLoCo.state_dict() returned")
        shared = unpack_state(bytes(state[SHARED]))
        if shared["settings"] != self._settings():
            raise StateError(
                f"the state was made with {_shown(shared['settings'])}, this run has "
                f"{_shown(self._settings())}: pass the same"
            )
        if {name: list(t.shape) for name, t in shared["start"].items()} != {
            name: list(t.shape) for name, t in self._start.items()
        }:
            raise StateError("the state belongs to another model: build the model as it was then")
        self.exchange.load_state_dict({key: own for key, own in state.items() if key != SHARED})
        self.local_steps = int(shared["steps"])
        if self.adapts:
            self.every, self._counted_from = shared["round"]
        for name, tensor in shared["start"].items():
            self._start[name].copy_(tensor)
        device = self.exchange.device
        self._momentum = {name: tensor.to(device) for name, tensor in shared["momentum"].items()}

    def close(self) -> None:
        """Ends threads and connections; call it, or leave a `with` block, after the last step."""
        self.exchange.close()

    def __enter__(self) -> DiLoCo:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.exchange.__exit__(kind, error, trace)

    def _turn(self, fragment: int) -> int:
        """The place in a round at which a fragment is sent; the last one's is the end of the round."""
        return (fragment + 1) * self.every // len(self._fragments) % self.every

    @torch.no_grad()
    def _send(self, fragment: int) -> None:
        names = self._fragments[fragment]
        for name in names:
            torch.sub(self._start[name], self._parameters[name], out=self._deltas[name])
        self._sent = fragment
        given = {name: self._deltas[name] for name in names}
        self.exchange.start(given, f"DiLoCo.step (local step {self.local_steps})")

    @torch.no_grad()
    def _take(self, fragment: int, mix: float = 0.0) -> None:
        self._sent = None
        self.exchange.wait()
        names = self._fragments[fragment]
        finite = all(is_finite(self._deltas[name]) for name in names)  # the same bits on all ranks
        for name in names:
            start, parameter = self._start[name], self._parameters[name]
            if finite:  # else some rank has diverged: all go on from where they were
                self._outer_step(name, start, self._deltas[name])
            if mix:
                parameter.mul_(mix).add_(start, alpha=1 - mix)
            else:
                parameter.copy_(start)

    def _outer_step(self, name: str, start: Tensor, delta: Tensor) -> None:
        if self.outer_momentum:
            v = self._momentum.setdefault(name, torch.zeros_like(start))
            v.mul_(self.outer_momentum).add_(delta)
            delta.add_(v, alpha=self.outer_momentum)
        start.sub_(delta, alpha=self.outer_lr)

    def _adapt(self, local_s: float, exchange_s: float) -> None:
        """Another length for the rounds to come; collective.

        The slowest rank's local steps count, and the exchange of the rank that came last: it waited least.
        """
        exchange, most = self.exchange, torch.iinfo(torch.int32).max
        words = [min(round(1e6 * local_s), most), -min(round(1e6 * exchange_s), most)]
        slowest = torch.tensor(words, dtype=torch.int32, device=exchange.device)
        worker, clock = exchange.queue.worker, exchange.engine.clock
        call_measuring(worker, clock, lambda: exchange.group.all_reduce_max(slowest).wait())
        local_us, exchange_us = slowest.abs().tolist()
        self.every = fewest_local_steps(local_us, exchange_us, self.every)
        self._counted_from, self._began_s = self.local_steps, self._clock()

    def _settings(self) -> dict[str, float]:
        return {
            "every": 0 if self.adapts else self.every,
            "fragments": len(self._fragments),
            "overlap": self.overlap,
            "outer_lr": self.outer_lr,
            "outer_momentum": self.outer_momentum,
            "mix": self.mix,
        }

    def _meet(self) -> None:
        """All ranks must have the same settings; they take the parameters of the first rank."""
        exchange, settings = self.exchange, self._settings()
        group = exchange.group

        def job() -> None:
            exchange.engine.clock.current = COMPARE
            mine = torch.tensor(list(settings.values()), dtype=torch.float64, device=exchange.device)
            everyone = mine.new_empty(group.size, mine.numel())
            group.all_gather(mine.view(torch.uint8), everyone.view(torch.uint8)).wait()
            for rank, theirs in enumerate(everyone.tolist()):
                if theirs != everyone[0].tolist():
                    first = _shown(dict(zip(settings, everyone[0].tolist(), strict=True)))
                    other = _shown(dict(zip(settings, theirs, strict=True)))
                    raise PlanError(
                        f"ranks disagree on their local steps: rank {group.global_rank(0)} has {first}, rank "
                        f"{group.global_rank(rank)} has {other}; pass the same to DiLoCo on every rank"
                    )
            for tensor in self._start.values():
                group.broadcast(tensor).wait()

        try:
            exchange.queue.worker.call(job)
        except Exception:
            exchange.close()
            raise
        with torch.no_grad():
            for name, parameter in self._parameters.items():
                parameter.copy_(self._start[name])


def _check(
    every: int | str, outer_lr: float, outer_momentum: float, fragments: int, overlap: int, mix: float
) -> None:
    if every == AUTO:
        if fragments != 1 or overlap:
            raise PlanError(f'every="auto" measures whole rounds: leave out {fragments=} and {overlap=}')
        every = FIRST_ROUND
    if not isinstance(every, int) or every < 1:
        raise PlanError(f'every={every!r} must be a number of local steps, at least 1, or "auto"')
    if not outer_lr > 0 or not 0 <= outer_momentum < 1:
        raise PlanError(
            f"outer_lr={outer_lr:g} must be above 0 and outer_momentum={outer_momentum:g} from 0 to below 1"
        )
    if not 1 <= fragments <= every:
        raise PlanError(
            f"fragments={fragments} must be at least 1 and at most every={every}: each has one turn a round"
        )
    if not 0 <= overlap < max(1, every // fragments):
        raise PlanError(
            f"overlap={overlap} must be at least 0 and below the {every // fragments} local steps between "
            "two exchanges: one must be over before the next begins"
        )
    if not 0 <= mix < 1:
        raise PlanError(f"mix={mix:g} must be at least 0 (take what comes) and less than 1")


def _balanced(tensors: Mapping[str, Tensor], count: int) -> list[list[str]]:
    """The names in `count` fragments of about equal size: largest first, each to the smallest one."""
    found: list[list[str]] = [[] for _ in range(count)]
    sizes = [0] * count
    for name in sorted(tensors, key=lambda name: -tensors[name].numel()):
        smallest = sizes.index(min(sizes))
        found[smallest].append(name)
        sizes[smallest] += tensors[name].numel()
    order = {name: place for place, name in enumerate(tensors)}
    return [sorted(names, key=order.__getitem__) for names in found]


def _shown(settings: Mapping[str, float]) -> str:
    return ", ".join(f"{name}={value:g}" for name, value in settings.items())
