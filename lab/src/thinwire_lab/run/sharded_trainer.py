"""A trainer of N virtual workers that share one model as FSDP2 does: rows, masters, gathered weights."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import torch
from torch import Tensor, nn

import thinwire as tw
from thinwire.codecs.coder import Context
from thinwire.errors import LabError
from thinwire.exchange.engine import Bucket, Engine
from thinwire.exchange.weights import UnitWeights, WeightCodec
from thinwire.groups.base import all_gather_bytes
from thinwire.groups.thread import ThreadGroup
from thinwire.groups.wrappers import Metered
from thinwire.kernels import pick
from thinwire.plans.policy import Model, plain_name
from thinwire.plans.sharded import ShardedPlan, rows_of
from thinwire.tensors import Layout, Spec
from thinwire_lab.data import Task
from thinwire_lab.data.task import Indices
from thinwire_lab.run.checkpoint import Checkpoint
from thinwire_lab.run.recipe import Recipe, read_codec_choice
from thinwire_lab.run.trainer import Training, make_optimizer
from thinwire_lab.run.virtual_trainer import CPU, TIMEOUT_S, Draw, Replicas

RAW = "raw"  # weights as they are


class VirtualUnit:
    """Parameters that travel together: chunk r of each, padded with zeros, is rank r's."""

    def __init__(self, names: Sequence[str], shapes: Sequence[torch.Size], world: int) -> None:
        self.names, self.shapes, self.world = names, shapes, world
        chunks = [(-(-shape[0] // world), *shape[1:]) for shape in shapes]
        self.specs = [Spec(name, tuple(chunk)) for name, chunk in zip(names, chunks, strict=True)]
        self.rows, self.row = rows_of(self.specs, world), Layout.packed(self.specs)

    def pack(self, tensors: Sequence[Tensor]) -> Tensor:
        """(ranks, elements): what FSDP2's reduce-scatter takes."""
        rows = torch.zeros(self.world, self.row.numel)
        for tensor, where, spec in zip(tensors, self.row.slices, self.specs, strict=True):
            padded = torch.zeros(self.world * spec.shape[0], *spec.shape[1:])
            padded[: tensor.shape[0]] = tensor
            rows[:, where] = padded.view(self.world, -1)
        return rows

    def unpack(self, rows: Tensor) -> list[Tensor]:
        """The tensors again."""
        found = []
        for shape, where, spec in zip(self.shapes, self.row.slices, self.specs, strict=True):
            padded = rows[:, where].reshape(self.world * spec.shape[0], *spec.shape[1:])
            found.append(padded[: shape[0]])
        return found


def units_of(net: nn.Module, world: int) -> list[VirtualUnit]:
    """A unit for every block of the net, and one for all the rest."""
    groups: dict[str, list[tuple[str, torch.Size]]] = {}
    for name, parameter in net.named_parameters():
        parts = plain_name(name).split(".")
        numbered = len(parts) > 2 and parts[1].isdigit()
        groups.setdefault(".".join(parts[:2]) if numbered else "", []).append((name, parameter.shape))
    return [
        VirtualUnit([name for name, _ in own], [shape for _, shape in own], world) for own in groups.values()
    ]


class VirtualShardedTrainer(Training):
    """Does what N ranks of FSDP2 do, with thinwire's own route, engine and weights:

    1. all ranks compute gradients at the gathered weights
    2. each packs rows and exchanges them; rank r gets the mean of row r
    3. the optimizer updates the masters, which are the shards of all ranks
    4. weights are gathered from them, in few bits if that was asked for
    """

    rank = 0
    waited_s = 0.0

    def __init__(self, recipe: Recipe, task: Task) -> None:
        super().__init__(recipe, task, None)
        choice, world = read_codec_choice(recipe.codec), recipe.workers
        self.masters = copy.deepcopy(self.net)
        self.optimizer = make_optimizer(self.masters, recipe)
        self.units = units_of(self.net, world)
        self.replicas = Replicas(self.net, task, min(world, os.cpu_count() or 1))
        self._pool = ThreadPoolExecutor(world)
        self._groups = ThreadGroup.make(world, TIMEOUT_S)
        self._gathers = [Metered(group) for group in self._groups]
        plan = choice.plan(Model.of(self.net), world, self.num_steps)
        sharded = ShardedPlan.sharded(plan, [unit.rows for unit in self.units])
        self.engines = list(
            self._pool.map(lambda group: Engine(sharded, group, CPU, recipe.seed), self._groups)
        )
        how = None if choice.weights in (None, RAW) else WeightCodec.of(str(choice.weights))
        self._weights = [self._of_rank(rank, how) for rank in range(world)]
        self._own: list[Tensor] = [torch.empty(0)] * world

    def _of_rank(self, rank: int, how: WeightCodec | None) -> list[UnitWeights]:
        if how is None:
            return []
        context = Context(self.recipe.workers, rank, CPU, pick(CPU))
        policy = tw.Policy((), how.codec, ("vector", "small"))
        known, made = Model.of(self.net), []
        for unit in self.units:
            whole = [Spec(n, tuple(s)) for n, s in zip(unit.names, unit.shapes, strict=True)]
            coded = {spec.name for spec in whole if policy.choose(spec, known).codec == how.codec}
            made.append(UnitWeights(unit.row, coded, how, context, self.recipe.seed))
        return made

    @property
    def sent_bytes(self) -> int:
        """By one rank, gradients and weights."""
        return self.engines[0].group.step_bytes + self._gathers[0].step_bytes

    def steps(self, first: int, last: int) -> Iterator[float]:
        """Trains from step to step; gives the mean loss of all workers after each."""
        batches = [self.order.batches(rank, first, last) for rank in range(self.recipe.workers)]
        for indices in zip(*batches, strict=True):
            yield self.train_step(indices)

    def train_step(self, indices: Sequence[Indices]) -> float:
        """One step of all workers."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.recipe.lr_at(self.step, self.num_steps)
        draws = [Draw(own, self.seed_of(rank), self.recipe.augment) for rank, own in enumerate(indices)]
        losses = self.replicas.gradients(draws, self._note)
        self._reduce()
        self.optimizer.step()
        self._gather()
        self.step += 1
        return sum(losses) / len(losses)

    def checkpoint(self) -> Checkpoint:
        raise LabError("virtual workers cannot be saved: leave out --checkpoint")

    def close(self) -> None:
        """Ends all threads."""
        self.replicas.close()
        self._pool.shutdown()

    def _note(self, rank: int, loss: float, flat: Tensor) -> None:
        self._own[rank] = flat

    def _reduce(self) -> None:
        """Every rank exchanges its rows; the masters get the means."""
        parameters = dict(self.masters.named_parameters())

        def exchanged(rank: int) -> list[Tensor]:
            engine, found = self.engines[rank], []
            sizes = [parameter.numel() for parameter in parameters.values()]
            gradients = dict(zip(parameters, torch.split(self._own[rank], sizes), strict=True))
            for unit in self.units:
                rows = unit.pack([gradients[name].view_as(parameters[name]) for name in unit.names])
                engine.exchange(Bucket(rows.view(-1), unit.rows))
                found.append(rows[rank])
            engine.agree_on_finite()
            engine.end_step()
            return found

        means = list(self._pool.map(exchanged, range(self.recipe.workers)))
        for index, unit in enumerate(self.units):
            rows = torch.stack([own[index] for own in means])
            for name, mean in zip(unit.names, unit.unpack(rows), strict=True):
                parameters[name].grad = mean.clone()

    @torch.no_grad()
    def _gather(self) -> None:
        """All ranks gather weights; the net computes with what came."""
        masters, net = dict(self.masters.named_parameters()), dict(self.net.named_parameters())
        if not self._weights[0]:
            for name, parameter in net.items():
                parameter.copy_(masters[name])
            for unit in self.units:
                self._gathers[0].count("all_gather", all_gather_bytes(4 * unit.row.numel, unit.world))
            return
        packed = [unit.pack([masters[name] for name in unit.names]) for unit in self.units]

        def gathered(rank: int) -> list[Tensor]:
            found = []
            for unit, rows in zip(self._weights[rank], packed, strict=True):
                out = torch.empty_like(rows)
                unit.gather(self._gathers[rank], rows[rank], out, self.step, again=False)
                found.append(out)
            return found

        first, *_ = self._pool.map(gathered, range(self.recipe.workers))
        for unit, rows in zip(self.units, first, strict=True):
            for name, tensor in zip(unit.names, unit.unpack(rows), strict=True):
                net[name].copy_(tensor)
