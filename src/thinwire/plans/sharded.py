"""The plan of a sharded model (FSDP2): every rank gets the mean of its rows; weights are gathered."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from typing import ClassVar

from thinwire.codecs.stage import Learned
from thinwire.errors import PlanError
from thinwire.feedback.table import exact_mean
from thinwire.groups.base import all_reduce_max_bytes
from thinwire.plans.lane import dry_context, tensor_bytes, whole
from thinwire.plans.plan import Plan
from thinwire.routes import SCATTER
from thinwire.tensors import Layout, Spec

_FINITE_BYTES = 4  # whether a step's means are finite, where something is held back


def rows_of(specs: Sequence[Spec], world: int) -> Layout:
    """What a unit's reduce-scatter takes: row r is chunk r of every tensor; the specs are those of a chunk.

    >>> rows_of([Spec("w", (2, 3)), Spec("b", (2,))], world=2).offsets
    (0, 6, 8, 14)
    """
    return Layout.packed(replace(spec, unit=row) for row in range(world) for spec in specs)


@dataclass(frozen=True)
class WeightsPlan:
    """How weights are gathered: a text, what one rank sends for that in a step, and what copies take.

    Units that reshard behind the forward pass are gathered again in the backward pass.
    """

    about: str
    step_bytes: int
    plain_bytes: int  # in a step, of weights as they are
    copy_bytes: int


@dataclass(frozen=True)
class ShardedPlan(Plan):
    """A plan whose tensors travel in rows, one for each rank, unit by unit."""

    units: tuple[Layout, ...] = ()  # the rows of each unit
    weights: WeightsPlan | None = None

    plain_act: ClassVar[str] = "reduce-scatter"

    @classmethod
    def sharded(cls, plan: Plan, units: Iterable[Layout], weights: WeightsPlan | None = None) -> ShardedPlan:
        """Refuses what needs whole tensors."""
        for entry in plan.entries:
            SCATTER.check(entry.codec)
            if exact_mean(entry.feedback):
                raise PlanError(
                    f'feedback "{entry.feedback}" needs the mean of whole tensors, and under FSDP2 a rank '
                    "gets that of its rows: leave it out"
                )
        entries = tuple(replace(entry, route=SCATTER.name) for entry in plan.entries)
        kept = {field.name: getattr(plan, field.name) for field in fields(Plan)}
        made = cls(**{**kept, "entries": entries}, units=tuple(units), weights=weights)
        for layout in made.units:  # refuses worlds that a codec cannot serve
            made.lanes(layout, dry_context(made.world))
        return made

    def step_bytes(
        self,
        buckets: Iterable[Layout] | None = None,
        step: int = 0,
        learned: Learned | None = None,
        part_numel: int | None = None,
    ) -> int:
        """What one rank sends in a step for its gradients; exact, without the weights' all-gathers."""
        sent = super().step_bytes(self.units if buckets is None else buckets, step, learned, part_numel)
        return sent + (all_reduce_max_bytes(_FINITE_BYTES, self.world) if self.remembers else 0)

    def tensor_bytes(self) -> dict[str, int]:
        sums: Counter[str] = Counter({entry.spec.name: 0 for entry in self.entries})
        for layout in self.units:
            for name, share in tensor_bytes(self.lanes(layout, dry_context(self.world))).items():
                sums[name] += share  # type: ignore[assignment]
        return whole(sums)

    @property
    def weights_step_bytes(self) -> int:
        """What one rank sends in a step to gather weights."""
        return 0 if self.weights is None else self.weights.step_bytes

    @property
    def feedback_bytes(self) -> int:
        """What error feedback holds on every rank: whole gradients, twice where a step can be undone."""
        held = {entry.spec.name for entry in self.entries if entry.feedback != "none"}
        return sum(8 * spec.numel for layout in self.units for spec in layout.specs if spec.name in held)

    def summary(self) -> str:
        lines = [super().summary()]
        if self.feedback_bytes:
            lines.append(f"error feedback holds {self.feedback_bytes:,} bytes of memory on every rank")
        if self.weights is not None:
            weights = self.weights
            copies = f"; copies of them take {weights.copy_bytes:,} bytes on every rank"
            lines.append(
                f"weights {weights.about}: {weights.step_bytes:,} bytes a step from each worker, "
                f"{weights.plain_bytes / max(1, weights.step_bytes):.2f}x fewer than all-gathers of them as "
                f"they are{copies if weights.copy_bytes else ''}"
            )
        return "\n".join(lines)
