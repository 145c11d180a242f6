"""A plan: the policy applied to a model. Static, printable, with exact bytes and a digest to compare."""

from __future__ import annotations

import functools
import hashlib
import warnings
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch

from thinwire.codecs.codec import Codec
from thinwire.codecs.coder import Context, Merge
from thinwire.codecs.stage import NOTHING, Learned
from thinwire.deprecated import FormerAttribute, former_arguments
from thinwire.errors import PlanError
from thinwire.feedback.table import exact_mean, feedback_text, uses_norm, uses_rates
from thinwire.groups.base import PLAIN_ACTS, all_gather_bytes, broadcast_bytes
from thinwire.plans.lane import (
    STATUS_BYTES,
    WIRE_VERSION,
    Lane,
    Stretch,
    dry_context,
    node_bytes,
    step_bytes,
    tensor_bytes,
    whole,
)
from thinwire.plans.policy import Model, Policy
from thinwire.routes import route_name, route_named
from thinwire.schedules.base import RECORD_BYTES, Schedule
from thinwire.schedules.table import check_schedule, make_schedule, schedule_text
from thinwire.tensors import Layout, Spec, plain_name
from thinwire.texts import counted

WORTH_A_HINT = 0.25  # share of the bytes of one dense tensor
HORIZON = 10_000  # steps over which phases are averaged
_FLOATS = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})


@dataclass(frozen=True)
class Entry:
    """One tensor: what happens to it and why."""

    spec: Spec
    codec: Codec
    feedback: str
    route: str
    reason: str

    memory = FormerAttribute("feedback")

    def __str__(self) -> str:
        return f"{self.spec} | {self.codec.canonical} | {self.feedback} | {self.route}"

    @property
    def reencodes(self) -> bool:
        """True if owners encode the mean of its shares again."""
        return self.codec.merge is Merge.GATHER and self.route == "sharded"


def tensor_in(line: str) -> str:
    """The tensor that the text of an entry is of.

    >>> tensor_in("fc.weight[10, 20]:float32 | Dense() | none | allreduce")
    'fc.weight'
    """
    return line.partition(" | ")[0].rpartition("[")[0]


def mean_bytes(stretches: Iterable[Stretch]) -> float:
    """What one rank sends in a step, on average."""
    listed = list(stretches)
    return sum(s.num_steps * s.step_bytes for s in listed) / sum(s.num_steps for s in listed)


@dataclass(frozen=True)
class Plan:
    """Every tensor's codec, error feedback and route for a world of a given size, and the schedule."""

    entries: tuple[Entry, ...]
    world: int
    schedule: Schedule[Any] | None = None  # None: the compression level is always 1
    theta: float | None = None  # the part that all codecs at level 1 drop, if it is the same
    per_node: int = 1  # workers in a node, of which one leads; `world` counts those who exchange, the leaders

    plain_act: ClassVar[str] = "all-reduce"  # what a plan's bytes are compared with
    control = FormerAttribute("schedule")
    at_strength = FormerAttribute("at_level")

    @classmethod
    def empty(cls, policy: Policy, world: int, schedule: str | None = None, per_node: int = 1) -> Plan:
        """A plan of no tensors yet; others are joined to it."""
        made = make_schedule(schedule)
        return cls((), world, made, check_schedule(made, policy.codecs), per_node)

    @classmethod
    @former_arguments(memory="feedback", control="schedule")
    def of(
        cls,
        policy: Policy,
        model: Model,
        world: int,
        feedback: str | None = None,
        route: str | None = None,
        schedule: str | None = None,
        per_node: int = 1,
    ) -> Plan:
        """Applies a policy. `feedback` and `route` replace what codecs ask for; `schedule` sets their level.

        `world` workers exchange; in a hierarchy they are the leaders of nodes with `per_node` workers each.

        Tensors that stay dense beside a compressed codec go by "sharded", which adds in rank order: a ring
        all-reduce gives other bits when DDP moves a tensor to another bucket.
        """
        if not model.specs:
            raise PlanError("the model has no trainable parameters: there is nothing to send")
        policy.check(model)
        feedback = None if feedback is None else feedback_text(feedback)
        mixed = any(codec.merge is not Merge.SUM for codec in policy.codecs)
        entries = []
        for spec in model.specs:
            _refuse_strange(spec)
            choice = policy.choose(spec, model)
            codec = choice.codec
            chosen = "none" if codec.own_dtype else (feedback or codec.feedback)
            asked = "sharded" if codec.own_dtype and mixed else route
            name = route_name(codec, asked, world, exact_mean(chosen))
            entries.append(Entry(spec, codec, chosen, name, choice.reason))
        plan = replace(cls.empty(policy, world, schedule, per_node), entries=tuple(entries))
        for level in (1.0,) if plan.schedule is None else (1.0, 0.0):  # refuses worlds a codec cannot serve
            plan.at_level(level).lanes(Layout.packed(model.specs), dry_context(world))
        return plan

    def at_level(self, level: float) -> Plan:
        """This plan with its codecs at a compression level from 0 to 1; feedback and routes stay."""
        if level >= 1:
            return self
        return replace(self, entries=tuple(replace(e, codec=e.codec.at_level(level)) for e in self.entries))

    def joined(self, other: Plan) -> Plan:
        """Both plans' tensors in one plan."""
        return replace(self, entries=self.entries + other.entries)

    @functools.cached_property
    def has_phases(self) -> bool:
        """Whether some tensor's codec has phases."""
        return any(entry.codec.has_phases for entry in self.entries)

    def phases(
        self, step: int, learned: Learned | None = None, names: Iterable[str] | None = None
    ) -> tuple[str, ...]:
        """The phase of every (or each named) tensor's codec in a step; bytes change only when this does."""
        known, codecs = learned or {}, {entry.spec.name: entry.codec for entry in self.entries}
        return tuple(
            codecs[name].phase(step, known.get(name, NOTHING))
            for name in (codecs if names is None else names)
        )

    def lanes(
        self,
        bucket: Layout,
        context: Context,
        step: int = 0,
        learned: Learned | None = None,
        part_numel: int | None = None,
    ) -> list[Lane]:
        """The lanes of a bucket, in the order of their first tensors, in the phase of a step."""
        by_name = {entry.spec.name: entry for entry in self.entries}
        groups: dict[tuple[str, str, str, torch.dtype], list[int]] = {}
        for index, spec in enumerate(bucket.specs):
            entry = by_name[spec.name]
            alike = (entry.codec.canonical, entry.feedback, entry.route, spec.dtype)
            groups.setdefault(alike, []).append(index)
        lanes, known = [], {} if learned is None else learned
        for (_, feedback, route, _), members in groups.items():
            specs = tuple(bucket.specs[i] for i in members)
            layout = Layout(specs, tuple(bucket.offsets[i] for i in members))
            codec = by_name[layout.names[0]].codec
            way = route_named("sharded" if codec.starts(step) else route)  # as what stays dense goes
            lanes.append(Lane(codec, layout, feedback, way, context, step, known, part_numel))
        return lanes

    @functools.cached_property
    def remembers(self) -> bool:
        """True if a step leaves state for the next ones: error feedback, bases, phases."""
        return any(entry.feedback != "none" or entry.codec.learns for entry in self.entries)

    @functools.cached_property
    def uses_rates(self) -> bool:
        """True if some error feedback needs learning rates."""
        return any(uses_rates(entry.feedback) for entry in self.entries)

    @functools.cached_property
    def uses_norm(self) -> bool:
        """True if error feedback needs the norm of the whole gradient: all buckets wait for the last."""
        return any(uses_norm(entry.feedback) for entry in self.entries)

    @property
    def digest(self) -> bytes:
        """32 bytes that are equal on two ranks only if everything that shapes their messages is equal."""
        head = f"thinwire wire {WIRE_VERSION}, world {self.world}, control {schedule_text(self.schedule)}"
        head += f", {self.per_node} workers in a node" if self.per_node > 1 else ""
        text = "\n".join([head, *map(str, self.entries)])
        return hashlib.blake2b(text.encode(), digest_size=32).digest()

    def step_bytes(
        self,
        buckets: Iterable[Layout] | None = None,
        step: int = 0,
        learned: Learned | None = None,
        part_numel: int | None = None,
    ) -> int:
        """What one rank sends in a step; by default as if the model were one bucket.

        Exact. Where sizes follow from what was learnt (gradiveq's energy=), `learned` must be what the engine
        knows; without them it is the most that can be sent.
        """
        specs = (entry.spec for entry in self.entries)
        whole = buckets if buckets is not None else [Layout.packed(specs)]
        context = dry_context(self.world)
        observed = all_gather_bytes(RECORD_BYTES, self.world) if self._listens else 0
        return observed + sum(
            step_bytes(self.lanes(bucket, context, step, learned, part_numel)) for bucket in whole
        )

    def node_bytes(self, place: int, buckets: Iterable[Layout] | None = None) -> int:
        """What the worker at a place in its node (0 leads) sends inside of it in a step; exact."""
        specs = [entry.spec for entry in self.entries]
        dtypes = dict.fromkeys(spec.dtype for spec in specs)
        whole = [Layout.packed(s for s in specs if s.dtype == dtype) for dtype in dtypes]
        raw = sum(node_bytes(bucket, place, self.per_node) for bucket in buckets or whole)
        decided = self.remembers or self.schedule is not None
        told = broadcast_bytes(STATUS_BYTES, place, self.per_node) if decided else 0
        return raw + told + (all_gather_bytes(RECORD_BYTES, self.per_node) if self._listens else 0)

    @property
    def _listens(self) -> bool:
        return self.schedule is not None and self.schedule.needs is not None

    def stretches(
        self, buckets: Iterable[Layout] | None = None, part_numel: int | None = None, horizon: int = HORIZON
    ) -> list[Stretch]:
        """The first `horizon` steps, cut where a phase begins; one stretch for codecs without phases."""
        whole = None if buckets is None else list(buckets)
        codecs = {entry.codec.canonical: entry.codec for entry in self.entries}.values()
        firsts: list[tuple[int, str]] = []
        for step in range(horizon):
            phase = ", ".join(dict.fromkeys(filter(None, (codec.phase(step) for codec in codecs))))
            if not firsts or phase != firsts[-1][1]:
                firsts.append((step, phase))
        sizes: dict[str, int] = {}
        for step, phase in firsts:
            if phase not in sizes:
                sizes[phase] = self.step_bytes(whole, step, None, part_numel)
        ends = [step for step, _ in firsts[1:]] + [horizon]
        return [
            Stretch(phase, step, end - step, sizes[phase])
            for (step, phase), end in zip(firsts, ends, strict=True)
        ]

    @property
    def dense_bytes(self) -> int:
        """What one rank would send for the gradients as they are."""
        return PLAIN_ACTS[self.plain_act](sum(entry.spec.nbytes for entry in self.entries), self.world)

    @property
    def plain_name(self) -> str:
        """What an all-reduce of the gradients as they are is called by: "fp32", "bf16", ..."""
        return plain_name(entry.spec for entry in self.entries)

    def tensor_bytes(self) -> dict[str, int]:
        """What every tensor makes one rank send in a step, on average over the phases, as one bucket.

        Together with the bytes that a schedule's observations cost, they are the bytes of a step.
        """
        layout, context = Layout.packed(entry.spec for entry in self.entries), dry_context(self.world)
        stretches = self.stretches()
        steps, sums = Counter[str](), {entry.spec.name: 0.0 for entry in self.entries}
        for stretch in stretches:
            steps[stretch.phase] += stretch.num_steps
        firsts = {stretch.phase: stretch.first for stretch in reversed(stretches)}
        for phase, first in firsts.items():
            for name, share in tensor_bytes(self.lanes(layout, context, first)).items():
                sums[name] += share * steps[phase] / steps.total()
        return whole(sums)

    def hint(self, sent: Mapping[str, int]) -> str | None:
        """A sentence on the one dense tensor that most of the bytes are for, if there is one."""
        compressed = [entry.codec for entry in self.entries if not entry.codec.near_lossless]
        dense = [entry for entry in self.entries if entry.codec.near_lossless]
        if not compressed or not dense or not sum(sent.values()):
            return None
        most = max(dense, key=lambda entry: sent[entry.spec.name])
        name, share = most.spec.name, sent[most.spec.name] / sum(sent.values())
        if share < WORTH_A_HINT:
            return None
        fits = compressed[0].refuses(most.spec) is None
        other = str(compressed[0]) if fits else "fp16"
        return (
            f"{share:.0%} of the bytes is one tensor that stays dense, {name} ({most.reason}); "
            f'a rule would change that: {{"{name}": "{other}", "*": "{compressed[0]}"}}'
        )

    def idle(self) -> str | None:
        """Why nothing is compressed, by tensors, if nothing is; None if something is."""
        if any(not entry.codec.near_lossless for entry in self.entries):
            return None
        reasons = Counter(entry.reason for entry in self.entries)
        return ", ".join(f"{reason}: {count}" for reason, count in reasons.most_common())

    def __str__(self) -> str:
        width = max(len(entry.spec.name) for entry in self.entries)
        lines = [
            f"{name:<{width}}  {numel:>11}  {codec:<12} {feedback:<8} {route:<9}"
            f" {nbytes:>11} bytes {share:>4}  ({why})"
            for name, numel, nbytes, share, codec, feedback, route, why in self.rows()
        ]
        return "\n".join([*lines, self.summary()])

    def rows(self) -> list[tuple[str, ...]]:
        """Of every tensor: name, elements, bytes and their share, codec, feedback, route and the reason."""
        each, sent = self.tensor_bytes(), mean_bytes(self.stretches()) or 1
        return [
            (
                e.spec.name,
                f"{e.spec.numel:,}",
                f"{each[e.spec.name]:,}",
                f"{each[e.spec.name] / sent:.0%}",
                *(str(e.codec), e.feedback, e.route, e.reason),
            )
            for e in self.entries
        ]

    def summary(self) -> str:
        """What all tensors make a worker send, phase by phase."""
        each, stretches, dense = self.tensor_bytes(), self.stretches(), self.dense_bytes
        sent, lines = mean_bytes(stretches), list[str]()
        ratio = f", {dense / sent:.2f}x fewer than {self.plain_name} {self.plain_act}" if sent else ""
        firsts = {stretch.phase: stretch for stretch in reversed(stretches)}
        lines += [
            f"phase {phase}: {firsts[phase].step_bytes:,} bytes a step, first in step {firsts[phase].first}"
            for phase in reversed(firsts)
            if len(stretches) > 1
        ]
        lines += filter(None, [self.hint(each)])
        kind = "worker" if self.per_node == 1 else "leader"
        lines.append(f"{sent:,.0f} bytes a step from each of {counted(self.world, kind)}{ratio}")
        if self.per_node > 1:
            lines.append(
                f"hierarchy: {counted(self.world, 'node')} of {self.per_node} workers; inside a node, raw: "
                f"{self.node_bytes(0):,} bytes a step from its leader, at most "
                f"{self.node_bytes(1):,} from each other worker"
            )
        if self.schedule is not None:
            least = mean_bytes(self.at_level(0).stretches())
            lines.append(
                f"schedule {schedule_text(self.schedule)}: {least:,.0f} bytes a step at compression level 0"
            )
        return "\n".join(lines)


def idle_text(plan: Plan, policy: Policy) -> str | None:
    """A sentence if a codec that compresses was asked for, and every tensor stays dense; else None."""
    asked = [codec for codec in policy.codecs if not codec.near_lossless]
    reasons = plan.idle()
    if not asked or not reasons:
        return None
    return (
        f"{asked[-1]} compresses nothing of this model, all its tensors stay dense ({reasons}). Name "
        'tensors by a rule, as in {"fc*": "terngrad", "*": "dense"}, lower min_numel, give keep_dense=() '
        "or take another codec; print(compressor.plan) shows every tensor"
    )


def warn_idle(plan: Plan, policy: Policy) -> None:
    """Warns if nothing is compressed though it was asked for."""
    if text := idle_text(plan, policy):
        warnings.warn(text, stacklevel=4)


def _refuse_strange(spec: Spec) -> None:
    if spec.dtype not in _FLOATS:
        raise PlanError(
            f"{spec.name} is {spec.dtype}: thinwire sends float32, float64, float16 and bfloat16 gradients; "
            "freeze it (requires_grad_(False)) or keep it out of DDP"
        )
