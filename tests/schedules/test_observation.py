"""Observations: what the ranks tell each other, and what they must agree on."""

from __future__ import annotations

import math

import pytest
import torch

from thinwire.errors import PlanError
from thinwire.schedules.base import RECORD_BYTES, Observation, Seen, agree, merged, read_records

CPU = torch.device("cpu")


def name(rank: int) -> int:
    """As in a sub-group: users know these ranks by other numbers."""
    return 10 + rank


@pytest.mark.parametrize(
    "observation",
    [
        Observation(),
        Observation.of(1.25),
        Observation.of(math.inf, lr=0.1, epoch=3.5, reference=-2.0),
        Observation.of(lr=0.0),
    ],
)
def test_records(observation: Observation) -> None:
    record = observation.record()
    assert (record.dtype, record.nbytes) == (torch.uint8, RECORD_BYTES)
    assert read_records(record.unsqueeze(0)) == [observation]


def test_nan_is_a_loss_and_travels() -> None:
    records = torch.stack([Observation.of(value).record() for value in (1.0, math.nan)])
    assert math.isnan(agree(read_records(records), name).loss or 0.0)


def test_means_over_calls_and_ranks() -> None:
    first = Observation.of(1.0, lr=0.2).plus(Observation.of(torch.tensor(3.0), lr=0.1, reference=1.0))
    second = Observation.of(4.0).plus(Observation.of(6.0, lr=0.1, reference=torch.tensor([2.0])))
    assert agree([first, second], name) == Seen(loss=3.5, lr=0.1, epoch=None, reference=1.5)
    assert agree([Observation(), Observation()], name) == Seen()


def refused(*observations: Observation, needs: str | None = None) -> str:
    with pytest.raises(PlanError) as caught:
        agree(observations, name, needs)
    return str(caught.value)


def test_ranks_that_did_not_call_are_named() -> None:
    once = Observation.of(1.0)
    text = refused(once, Observation(), once)
    assert "on some ranks only" in text
    assert "rank 10, 12 called it once, rank 11 did not" in text
    assert "on every rank" in text
    assert "rank 10 called it once, rank 11 called it 2 times" in refused(once, once.plus(once))


def test_ranks_must_tell_the_same_things() -> None:
    assert "a loss by rank 11 but not by rank 10" in refused(
        Observation.of(lr=0.1), Observation.of(1.0, lr=0.1)
    )
    assert "lr by rank 10 but not by rank 11" in refused(Observation.of(1.0, lr=0.1), Observation.of(1.0))
    assert "0.1 by rank 10, 0.2 by rank 11" in refused(Observation.of(lr=0.1), Observation.of(lr=0.2))
    assert "values of epoch" in refused(Observation.of(epoch=1), Observation.of(epoch=2))
    assert "call observe(lr=...)" in refused(Observation.of(1.0), Observation.of(1.0), needs="lr")
    assert "call observe(loss)" in refused(Observation.of(lr=1.0), needs="loss")


def test_what_is_no_number_is_refused_where_it_is_told() -> None:
    for wrong, words in ((torch.zeros(3), "Tensor of shape [3]"), ("much", "not str"), ([1.0], "not list")):
        with pytest.raises(PlanError) as caught:
            Observation.of(wrong)  # type: ignore[arg-type]
        assert words in str(caught.value)
    for told in ({"lr": math.nan}, {"epoch": math.inf}, {"reference": math.nan}):
        with pytest.raises(PlanError, match="must be a finite number"):
            Observation.of(1.0, **told)


def test_a_loss_with_a_history_makes_no_noise() -> None:
    assert Observation.of(torch.tensor(2.0, requires_grad=True) * 2).loss == 4.0


def test_one_observation_for_all() -> None:
    """In a world of another size every rank tells the mean."""
    told = [Observation.of(loss, lr=0.1).plus(Observation.of(loss)) for loss in (1.0, 2.0, 6.0)]
    one = merged(told, name)
    for world in (1, 2, 5):
        assert agree([one] * world, name) == agree(told, name)
    assert merged([Observation()] * 3, name) == Observation()
