"""What `thinwire plan --local` says of accuracy is what the records of the study say."""

from __future__ import annotations

from pathlib import Path

import pytest

from thinwire.perf.local_steps import STUDIED
from thinwire_lab.run.records import RunRecords
from thinwire_lab.spread import Spread

RECORDS = Path(__file__).parents[3] / "docs" / "records"
BATCH, STEPS = 8, 2000
OUTER = {"sparseloco": "1/0"}


def losses() -> dict[tuple[str, int], float]:
    """The loss of every run of the long text study, by codec text and seed."""
    names = ("accuracy-shakespeare-long", "local-shakespeare")
    found = [run for name in names for run in RunRecords(RECORDS / f"{name}.jsonl").runs()]
    return {
        (recipe.codec, recipe.seed): outcome.test_loss
        for recipe, outcome in found
        if (recipe.batch, recipe.steps) == (BATCH, STEPS)
    }


@pytest.mark.parametrize(("codec", "every"), list(STUDIED))
def test_gaps_are_those_of_the_records(codec: str, every: int) -> None:
    found = losses()
    text = codec if every == 1 else f"{codec} @ every={every} outer={OUTER.get(codec, '0.9/0.5')}"
    name = "ddp" if text == "dense" else text
    gaps = [loss - found["ddp", seed] for (run, seed), loss in found.items() if run == name]
    assert Spread.of(gaps).mean == pytest.approx(STUDIED[codec, every], abs=0.0006)
