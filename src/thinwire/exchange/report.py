"""The report of a compressor: bytes, ratio, seconds by stage, error by layer."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from thinwire.codecs.stage import facts
from thinwire.deprecated import FormerAttribute
from thinwire.exchange.engine import Engine
from thinwire.exchange.nodes import Node
from thinwire.groups.base import PLAIN_ACTS
from thinwire.plans.plan import HORIZON, Plan
from thinwire.schedules.base import Change
from thinwire.schedules.table import schedule_text
from thinwire.texts import counted

SHOWN_CHANGES = 10


@dataclass(frozen=True)
class LayerReport:
    """One tensor. `relative_error` is |g - Q(g)| / |g| of this rank's payload, None where not measured.

    `learnt` holds what its codec found out, such as the energy that gradiveq's basis captures, or the part
    of the numbers that rangefloat could not hold in the step that was measured last.
    """

    name: str
    numel: int
    codec: str
    bytes_per_step: float
    bits_per_element: float
    relative_error: float | None
    learnt: dict[str, float] = field(default_factory=dict)

    def scalars(self) -> dict[str, float]:
        """Its numbers, under names that end with its own."""
        values = {"bytes_per_step": self.bytes_per_step, **self.learnt}
        if self.relative_error is not None:
            values["relative_error"] = self.relative_error
        return {f"{what}/{self.name}": value for what, value in values.items()}


@dataclass(frozen=True)
class Ahead:
    """A phase that is still to come: its first step, and what the plan says one worker then sends."""

    phase: str
    first: int
    bytes_per_step: int
    ratio: float


def ahead(plan: Plan, step: int) -> tuple[Ahead, ...]:
    """The phases that follow the one of a step, each where it is next met; none for codecs without phases."""
    if not any(plan.phases(step)):
        return ()
    stretches = plan.stretches(horizon=step + HORIZON)
    now = next(stretch for stretch in stretches if stretch.first <= step < stretch.first + stretch.num_steps)
    later = {s.phase: s for s in reversed(stretches) if s.first > step and s.phase != now.phase}
    return tuple(
        Ahead(s.phase, s.first, s.step_bytes, plan.dense_bytes / s.step_bytes if s.step_bytes else 1.0)
        for s in sorted(later.values(), key=lambda s: s.first)
    )


@dataclass(frozen=True)
class Report:
    """What one worker sent in its steps.

    `bits_per_element` counts all bits that a worker sends for an element, in both directions: fp32 by ring
    all-reduce is 2 (N-1)/N times 32. The `ratio` is against gradients as they are, in their own dtype.
    `other_bytes` went beside the steps: comparing plans, saving states.
    """

    codec: str
    world: int
    kernels: str
    steps: int
    bytes_per_step: float
    dense_bytes_per_step: float
    seconds: dict[str, float]
    layers: tuple[LayerReport, ...]
    schedule: str | None = None
    compression_level: float = 1.0  # now
    theta: float | None = None  # the part that is dropped, now
    changes: tuple[Change, ...] = ()  # of the compression level, so far
    other_bytes: int = 0  # in all, beside the steps
    phase: str = ""  # of the codec, now; "" if it has none
    ahead: tuple[Ahead, ...] = ()  # the phases that follow
    auto: str = ""  # what an auto run decided, and why
    per_node: int = 1  # workers in a node; beyond 1 all other bytes are those between nodes
    leads: bool = True  # this worker exchanges with other nodes
    node_bytes_per_step: float = 0.0  # raw, inside the node
    plain_act: str = "all-reduce"  # the collective that bytes are compared with
    weights_bytes_per_step: float = 0.0  # FSDP2: sent in all-gathers of weights
    plain_name: str = "fp32"  # what gradients are, if all are alike: "fp32", "bf16", ...; else "plain"

    control = FormerAttribute("schedule")
    strength = FormerAttribute("compression_level")

    @property
    def ratio(self) -> float:
        """How many times fewer bytes than a ring all-reduce of gradients as they are; 1 if none travel."""
        return self.dense_bytes_per_step / self.bytes_per_step if self.bytes_per_step else 1.0

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; `ratio` with them."""
        return {**asdict(self), "ratio": self.ratio}

    def scalars(self) -> dict[str, float]:
        """Numbers by name, for any logger: `wandb.log(compressor.report().scalars(), step=step)`.

        Bytes, seconds and errors are means over all steps so far; names begin with "thinwire/".
        """
        found = {
            "bytes_per_step": self.bytes_per_step,
            "ratio": self.ratio,
            "compression_level": self.compression_level,
        }
        if self.theta is not None:
            found["theta"] = self.theta
        for stage, seconds in self.seconds.items():
            found[f"seconds_per_step/{stage}"] = seconds / max(1, self.steps)
        for layer in self.layers:
            found |= layer.scalars()
        return {f"thinwire/{name}": float(value) for name, value in found.items()}

    def headline(self) -> dict[str, float]:
        """The few numbers that fit beside a loss: the ratio, and what this worker sends in a step."""
        return {"thinwire/ratio": self.ratio, "thinwire/MB_per_step": self.bytes_per_step / 1e6}

    def __str__(self) -> str:
        steps = max(1, self.steps)
        stages = ", ".join(f"{name} {1e3 * s / steps:.2f}" for name, s in self.seconds.items())
        lines = [
            f"{self.codec} on {counted(self.world, 'worker')}, {counted(self.steps, 'step')}, "
            f"kernels {self.kernels}",
            self._sent(),
            *self._hierarchy(),
            *self._phases(),
            f"milliseconds a step: {stages}",
            *self._scheduled(),
            *self.auto.splitlines(),
            "",
            f"bits: sent per element, in both directions; {self.plain_name} {self.plain_act} sends "
            f"{self.dense_bits:.0f}",
        ]
        width = max((len(layer.name) for layer in self.layers), default=4)
        lines.append(
            f"{'layer':<{width}}  {'elements':>11}  {'codec':<12}  {'bytes':>11}  {'bits':>6}  error"
        )
        for layer in self.layers:
            error = "-" if layer.relative_error is None else f"{layer.relative_error:.3f}"
            lines.append(
                f"{layer.name:<{width}}  {layer.numel:>11,}  {layer.codec:<12}  "
                f"{layer.bytes_per_step:>11,.0f}  {layer.bits_per_element:>6.2f}  {error}"
                + "".join(f"  {what} {value:.4g}" for what, value in layer.learnt.items())
            )
        return "\n".join(lines)

    @property
    def dense_bits(self) -> float:
        """Bits per element that one worker sends in a ring all-reduce of the gradients as they are."""
        numel = sum(layer.numel for layer in self.layers)
        return 8 * self.dense_bytes_per_step / max(1, numel)

    def _sent(self) -> str:
        if not self.leads:
            return "this worker leads no node: it sends nothing between nodes; its leader reports the layers"
        kind = "worker" if self.per_node == 1 else "leader"
        weights = (
            f"; weights: {self.weights_bytes_per_step:,.0f} bytes a step"
            if self.weights_bytes_per_step
            else ""
        )
        beside = f"; {self.other_bytes:,} bytes beside the steps" if self.other_bytes else ""
        return (
            f"{self.bytes_per_step:,.0f} bytes a step from each {kind}, "
            f"{self.ratio:.2f}x fewer than {self.plain_name} {self.plain_act}{beside}{weights}"
        )

    def _hierarchy(self) -> list[str]:
        """Nodes, and what stays inside of them."""
        if self.per_node == 1:
            return []
        return [
            f"hierarchy: {counted(self.world // self.per_node, 'node')} of {self.per_node} workers; inside "
            f"its node this one sends {self.node_bytes_per_step:,.0f} bytes a step, raw"
        ]

    def _phases(self) -> list[str]:
        """The phase of the next step, and what to expect behind it: a first one may compress nothing."""
        if not self.phase:
            return []
        lines = [f"phase {self.phase}" + (", then" if self.ahead else " from here on")]
        return lines + [
            f"  {later.phase} from step {later.first:,}: about {later.bytes_per_step:,} bytes a step, "
            f"{later.ratio:.2f}x fewer"
            for later in self.ahead[:SHOWN_CHANGES]
        ]

    def _scheduled(self) -> list[str]:
        """The schedule, and the last of its changes."""
        if self.schedule is None:
            return []
        theta = "" if self.theta is None else f", theta {self.theta:.4g}"
        lines = [
            f"schedule {self.schedule}: compression level {self.compression_level:.4g}{theta}, "
            f"{counted(len(self.changes), 'change')}"
        ]
        hidden = len(self.changes) - SHOWN_CHANGES
        lines += [f"  ... {hidden} before"] if hidden > 0 else []
        return lines + [
            f"  step {change.step}: compression level {change.compression_level:.4g}, {change.why}"
            for change in self.changes[-SHOWN_CHANGES:]
        ]


def report_of(engine: Engine, node: Node, plan: Plan, codec: str, auto: str = "") -> Report:
    """`codec` and `auto` are texts for people: what the codec is called, and why auto took it."""
    steps, layers, scheduler = max(1, engine.statistics.steps), layer_reports(engine), engine.scheduler
    phases = filter(None, plan.phases(engine.finite_steps, engine.learned))
    dense_bytes = sum(layer.dense_bytes for layer in list(engine.statistics.layers.values()))
    return Report(
        codec=codec,
        world=plan.world * plan.per_node,
        kernels=engine.context.kernels.name,
        steps=engine.statistics.steps,
        bytes_per_step=engine.group.step_bytes / steps,
        other_bytes=engine.group.aside_bytes,
        phase=", ".join(dict.fromkeys(phases)),
        ahead=ahead(plan, engine.finite_steps),
        dense_bytes_per_step=PLAIN_ACTS[plan.plain_act](dense_bytes, plan.world),
        plain_act=plan.plain_act,
        plain_name=plan.plain_name,
        seconds=dict(engine.clock.seconds),
        layers=layers,
        schedule=None if plan.schedule is None else schedule_text(plan.schedule),
        compression_level=scheduler.compression_level,
        theta=scheduler.theta,
        changes=tuple(scheduler.changes),
        auto=auto,
        per_node=plan.per_node,
        leads=node.leads,
        node_bytes_per_step=node.bytes_sent / steps,
    )


def layer_reports(engine: Engine) -> tuple[LayerReport, ...]:
    """Every tensor that was exchanged, in the order in which they were first seen."""
    return tuple(
        LayerReport(
            layer.name,
            layer.numel,
            layer.codec,
            layer.bytes_per_step,
            8 * layer.bytes_per_step / max(1, layer.numel),
            layer.relative_error,
            facts(engine.learned.get(layer.name, {})) | layer.tallies,
        )
        for layer in list(engine.statistics.layers.values())
    )
