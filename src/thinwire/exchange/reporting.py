"""Makes a report of an engine: what it counted, measured and learnt so far."""

from __future__ import annotations

from thinwire.codecs.stages.base import facts
from thinwire.controls.table import control_text
from thinwire.exchange.engine import Engine
from thinwire.exchange.node import Node
from thinwire.exchange.report import LayerReport, Report, ahead
from thinwire.groups.base import all_reduce_bytes
from thinwire.plans.plan import Plan


def report_of(engine: Engine, node: Node, plan: Plan, codec: str, auto: str = "") -> Report:
    """`codec` and `auto` are texts for people: what the codec is called, and why auto took it."""
    steps, layers, steering = max(1, engine.statistics.steps), layer_reports(engine), engine.steering
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
        dense_bytes_per_step=all_reduce_bytes(dense_bytes, plan.world),
        plain_name=plan.plain_name,
        seconds=dict(engine.clock.seconds),
        layers=layers,
        control=None if plan.control is None else control_text(plan.control),
        strength=steering.strength,
        theta=steering.theta,
        changes=tuple(steering.changes),
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
