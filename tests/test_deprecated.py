"""Former names still work, with a warning, and states that were saved under them are read."""

from __future__ import annotations

from typing import Any

import pytest

import thinwire as tw
from simulation import Simulation, assert_same, flat, gaussian
from thinwire.codecs.coder import GatherPacker
from thinwire.deprecated import former_arguments
from thinwire.errors import PlanError
from thinwire.exchange.state import gathered_state, load_state, local_state
from thinwire.groups.thread import ThreadGroup
from thinwire.plans.plan import Plan
from thinwire.plans.policy import Model, Policy
from thinwire.schedules.base import Observation
from thinwire.schedules.table import make_schedule, schedule_text
from thinwire.tensors import Spec

SPECS = (Spec("a", (40, 30)), Spec("b", (600,)))


def test_arguments() -> None:
    @former_arguments(memory="feedback")
    def chosen(*, feedback: str | None = None) -> str | None:
        return feedback

    former: dict[str, Any] = {"memory": "residual"}
    with pytest.warns(DeprecationWarning, match="memory= is called feedback= now"):
        assert chosen(**former) == "residual"
    with pytest.raises(PlanError, match="former name of feedback=, and both are given"):
        chosen(feedback="none", **former)


def test_plans_and_codecs() -> None:
    former: dict[str, Any] = {"memory": "none", "control": "guard"}
    policy, model = Policy.of("topk:0.1", ()), Model(SPECS)
    with pytest.warns(DeprecationWarning, match="is called (feedback|schedule)= now"):
        plan = Plan.of(policy, model, 2, **former)
    assert plan == Plan.of(policy, model, 2, feedback="none", schedule="guard")
    old: Any = plan
    with pytest.warns(DeprecationWarning, match="Plan.control is called schedule now"):
        assert old.control is plan.schedule
    with pytest.warns(DeprecationWarning, match="Entry.memory is called feedback now"):
        assert old.entries[0].memory == "none"
    with pytest.warns(DeprecationWarning, match="Codec.at_strength is called at_level now"):
        assert old.entries[0].codec.at_strength(0.5) == plan.entries[0].codec.at_level(0.5)


def test_links_of_users() -> None:
    """A class written for 0.2 says `memory`, `gentle`, `at_strength` and `decode_own`."""
    with pytest.warns(DeprecationWarning, match=r"Old\.\w+ is called \w+ now"):

        class Old(tw.Coder):
            merge = tw.Merge.GATHER
            memory = "residual"
            gentle = True

            def at_strength(self, strength: float) -> Old:
                return self

            def bind(self, layout: Any, context: Any) -> Any:
                raise NotImplementedError

    link = Old()
    assert (link.feedback, link.near_lossless, link.at_level(0.5)) == ("residual", True, link)
    with pytest.warns(DeprecationWarning, match="decode_own is called decode_local now"):

        class OldPacker(GatherPacker):
            def decode_own(self, payload: Any, shared: Any, x: Any) -> str:
                return "former"

    assert OldPacker.decode_local is OldPacker.decode_own  # type: ignore[comparison-overlap]


def test_values_of_a_schedule() -> None:
    with pytest.warns(DeprecationWarning, match="of=strength is called of=level now"):
        old = make_schedule("steps:0=1/5=0.5,of=strength")
    assert old == make_schedule("steps:0=1/5=0.5")
    assert schedule_text(old) == "steps:points=0=1/5=0.5"


def as_in_0_2(state: dict[str, Any]) -> dict[str, Any]:
    """A state under the names that thinwire 0.2 wrote."""
    former = {"feedback": "memories", "schedule": "control"}
    old = {former.get(name, name): value for name, value in state.items()}
    inner = {"compression_level": "strength", "baseline": "level"}

    def rename(values: dict[str, Any]) -> dict[str, Any]:
        return {inner.get(name, name): value for name, value in values.items()}

    control = dict(old["control"])
    control["state"] = rename(control["state"])
    control["changes"] = [rename(change) for change in control["changes"]]
    return {**old, "control": control}


@pytest.mark.parametrize("gather", [False, True])
def test_states(gather: bool) -> None:
    sim = Simulation("topk:0.05", SPECS, 1, schedule="guard:window=1,patience=1,gain=0.9")
    first = sim.engine(ThreadGroup.make(1)[0])
    for step in range(6):
        first.scheduler.observe(Observation.of(loss=2.0**step))
        sim.step(first, gaussian(SPECS)(step, 0))
    assert first.scheduler.compression_level < 1
    state = (gathered_state if gather else local_state)(first)
    old = as_in_0_2(state)
    assert "strength" in old["control"]["state"]
    second = sim.engine(ThreadGroup.make(1)[0])
    load_state(second, old)
    again = (gathered_state if gather else local_state)(second)
    assert again["schedule"] == state["schedule"]
    kept, read = (s["ranks"][0] if gather else s["feedback"] for s in (state, again))
    assert_same(flat(read["residual"]), flat(kept["residual"]))
