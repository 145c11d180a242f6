"""Memories keep the invariant in + old = sent + new, and believe only what was committed."""

from __future__ import annotations

import pytest
import torch

from thinwire.errors import PlanError
from thinwire.feedback.base import NoFeedback, Transmission
from thinwire.feedback.residual import Residual
from thinwire.feedback.table import make_feedback
from thinwire.tensors import Layout, Spec

PIECES = Layout((Spec("a", (3,)), Spec("b", (2,))), (0, 4)).pieces()


def test_in_plus_old_is_sent_plus_new() -> None:
    feedback = Residual()
    generator = torch.Generator().manual_seed(0)
    total_in, total_sent = torch.zeros(6), torch.zeros(6)
    for _ in range(20):
        x = torch.randn(6, generator=generator)
        total_in += x
        feedback.before(x, PIECES, 1.0)
        sent = x.round()
        feedback.after(Transmission(x, sent, 0, PIECES, 1.0))
        feedback.commit()
        total_sent += sent
    state = feedback.state()["residual"]
    torch.testing.assert_close(total_in[:3], total_sent[:3] + state["a"], rtol=0, atol=1e-5)
    torch.testing.assert_close(total_in[4:], total_sent[4:] + state["b"], rtol=0, atol=1e-5)


def test_numbers_between_the_tensors_are_left_alone() -> None:
    feedback = Residual()
    feedback.load({"residual": {"a": torch.ones(3), "b": torch.ones(2)}})
    x = torch.zeros(6)
    feedback.before(x, PIECES, 1.0)
    assert x.tolist() == [1, 1, 1, 0, 1, 1]


def test_what_is_not_committed_is_not_believed() -> None:
    """One Inf step must not leave anything behind, of any tensor."""
    feedback = Residual()
    feedback.load({"residual": {"a": torch.ones(3), "b": torch.ones(2)}})
    feedback.after(Transmission(torch.full((6,), torch.inf), torch.zeros(6), 0, PIECES, 1.0))
    feedback.forget()
    feedback.commit()
    assert feedback.state()["residual"]["a"].tolist() == [1, 1, 1]
    assert feedback.state()["residual"]["b"].tolist() == [1, 1]
    feedback.after(Transmission(torch.full((6,), 5.0), torch.zeros(6), 0, PIECES, 1.0))
    feedback.commit()
    assert feedback.state()["residual"]["a"].tolist() == [5, 5, 5]


def test_the_first_step_starts_empty() -> None:
    feedback = Residual()
    x = torch.arange(6.0)
    feedback.before(x, PIECES, 1.0)
    assert torch.equal(x, torch.arange(6.0))
    assert feedback.state() == {"residual": {}}


def test_residuals_are_kept_in_unscaled_units() -> None:
    """A GradScaler may halve the loss scale between two steps: what was held back is scaled anew."""
    feedback = Residual()
    feedback.after(Transmission(torch.full((6,), 1024.0), torch.zeros(6), 0, PIECES, 1024.0))
    feedback.commit()
    assert feedback.state()["residual"]["a"].tolist() == [1, 1, 1]
    x = torch.zeros(6)
    feedback.before(x, PIECES, 512.0)
    assert x.tolist() == [512, 512, 512, 0, 512, 512]


def test_states_are_copies() -> None:
    feedback = Residual()
    given = {"a": torch.ones(3)}
    feedback.load({"residual": given})
    feedback.state()["residual"]["a"].zero_()
    given["a"].zero_()
    assert feedback.state()["residual"]["a"].tolist() == [1, 1, 1]


def test_committed_and_staged_are_different_buffers() -> None:
    """The next step's staging must not change what is believed."""
    feedback = Residual()
    for value in (1.0, 2.0, 3.0):
        feedback.after(Transmission(torch.full((6,), value), torch.zeros(6), 0, PIECES, 1.0))
        feedback.commit()
    feedback.after(Transmission(torch.full((6,), 9.0), torch.zeros(6), 0, PIECES, 1.0))
    assert feedback.state()["residual"]["a"].tolist() == [3, 3, 3]


def test_loading_forgets_what_was_staged() -> None:
    feedback = Residual()
    feedback.after(Transmission(torch.full((6,), 9.0), torch.zeros(6), 0, PIECES, 1.0))
    feedback.load({"residual": {"a": torch.ones(3)}})
    feedback.commit()
    assert feedback.state()["residual"].keys() == {"a"}
    assert feedback.state()["residual"]["a"].tolist() == [1, 1, 1]


def test_a_tensor_that_was_not_exchanged_keeps_what_it_holds() -> None:
    """The room of the step before last is no residual of this one."""
    feedback = Residual()
    for value in (1.0, 2.0):
        feedback.after(Transmission(torch.full((6,), value), torch.zeros(6), 0, PIECES, 1.0))
        feedback.commit()
    feedback.after(
        Transmission(torch.full((6,), 3.0), torch.zeros(6), 0, PIECES[:1], 1.0)
    )  # "b" had no gradient
    feedback.commit()
    assert feedback.state()["residual"]["a"].tolist() == [3, 3, 3]
    assert feedback.state()["residual"]["b"].tolist() == [2, 2]


def test_a_tensor_in_pieces_is_one_residual() -> None:
    feedback, layout = Residual(), Layout.packed([Spec("a", (5,))])
    feedback.load({"residual": {"a": torch.arange(5.0)}})
    x = torch.zeros(5)
    for first, last in ((0, 2), (2, 5)):
        feedback.before(x, layout.pieces(first, last), 1.0)
        feedback.after(Transmission(x, x[first:last] - 1, first, layout.pieces(first, last), 1.0))
    assert x.tolist() == [0, 1, 2, 3, 4]
    feedback.commit()
    assert feedback.state()["residual"]["a"].tolist() == [1] * 5


def test_without_undo_the_new_takes_the_place_of_the_old() -> None:
    """Half the memory; what is not finite on this rank is still not believed."""
    feedback = make_feedback("residual:undo=off")
    feedback.load({"residual": {"a": torch.ones(3), "b": torch.ones(2)}})
    x = torch.tensor([2.0, 2.0, 2.0, 0.0, torch.nan, 2.0])
    feedback.after(Transmission(x, torch.zeros(6), 0, PIECES, 1.0))
    feedback.forget()
    assert feedback.state()["residual"]["a"].tolist() == [2, 2, 2]
    assert feedback.state()["residual"]["b"].tolist() == [1, 1]


def test_no_memory_holds_nothing() -> None:
    feedback = NoFeedback()
    x = torch.arange(6.0)
    feedback.before(x, PIECES, 1.0)
    feedback.after(Transmission(x, torch.zeros(6), 0, PIECES, 1.0))
    feedback.commit()
    assert torch.equal(x, torch.arange(6.0))
    assert feedback.state() == {}


def test_memories_by_name() -> None:
    assert (type(make_feedback("none")), type(make_feedback("residual"))) == (NoFeedback, Residual)
    with pytest.raises(PlanError, match='there is no feedback "elephant": known are none, residual'):
        make_feedback("elephant")
