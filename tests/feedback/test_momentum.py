"""Momentum feedback is DGC's algorithm: correction, masking, clipping, and when a step commits."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from simulation import held
from thinwire.errors import CodecError
from thinwire.feedback.base import NoFeedback, Transmission
from thinwire.feedback.momentum import Momentum, MomentumOptions
from thinwire.feedback.residual import Ef21, Residual
from thinwire.feedback.table import FEEDBACKS, feedback_text, make_feedback
from thinwire.tensors import Layout, Spec

PIECES = Layout((Spec("a", (3,)), Spec("b", (2,))), (0, 4)).pieces()


def test_memories_by_name() -> None:
    types = {"none": NoFeedback, "residual": Residual, "momentum": Momentum, "ef21": Ef21}
    assert {name: type(make_feedback(name)) for name in FEEDBACKS} == types


def test_feedback_texts_have_one_form() -> None:
    assert feedback_text("momentum:0.90") == feedback_text(" momentum : factor=0.9 ") == "momentum"
    assert feedback_text("momentum:nesterov=on,clip=2") == "momentum:nesterov=on,clip=2.0"
    assert feedback_text(feedback_text("momentum:0.5,nesterov=on")) == "momentum:factor=0.5,nesterov=on"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("momentum:1", "momentum: factor=1 must be at least 0 and less than 1"),
        ("momentum:-0.1", "factor=-0.1 must be at least 0"),
        ("momentum:nan", "factor=nan must be at least 0"),
        ("momentum:much", 'feedback "momentum:much": momentum: factor="much" does not fit: a number'),
        ("momentum:clip=0", "clip=0 must be positive; use clip=off"),
        ("momentum:nesterov=yes", 'nesterov="yes" does not fit: "on" or "off"'),
        ("momentum:beta=1", 'has no option "beta": it takes factor, nesterov, clip'),
        ("momentum:0.1,factor=0.2", "option factor of momentum is given twice"),
        ("residual:0.5", 'residual takes no bare value "0.5"'),
    ],
)
def test_bad_feedback_texts(text: str, sentence: str) -> None:
    with pytest.raises(CodecError) as caught:
        make_feedback(text)
    assert sentence in str(caught.value)


def select(v: Tensor, count: int = 2) -> Tensor:
    """A codec that sends the `count` largest."""
    sent = torch.zeros_like(v)
    top = v.abs().topk(count).indices
    sent[top] = v[top]
    return sent


@pytest.mark.parametrize("nesterov", [False, True])
def test_it_is_the_authors_algorithm(nesterov: bool) -> None:
    """u = m u + g; v += u; send v[chosen]; u[chosen] = v[chosen] = 0, written out."""
    feedback = Momentum(MomentumOptions(0.8, nesterov))
    pieces, generator = Layout.packed([Spec("a", (9,))]).pieces(), torch.Generator().manual_seed(1)
    u, v = torch.zeros(9), torch.zeros(9)
    for _ in range(12):
        g = torch.randn(9, generator=generator)
        if nesterov:
            u = (u + g) * 0.8
            v = v + u + g
        else:
            u = 0.8 * u + g
            v = v + u
        x = g.clone()
        feedback.before(x, pieces, 1.0)
        torch.testing.assert_close(x, v)
        sent = select(x)
        feedback.after(Transmission(x, sent, 0, pieces, 1.0))
        feedback.commit()
        u[sent != 0], v[sent != 0] = 0.0, 0.0
        state = held(feedback)
        torch.testing.assert_close(state["velocity a"], u)
        torch.testing.assert_close(state["unsent a"], v)


def test_e2_telescoping() -> None:
    """Everything that was ever added to v was sent or is still there: u + old = sent + new."""
    feedback, pieces = Momentum(), Layout.packed([Spec("a", (50,))]).pieces()
    generator = torch.Generator().manual_seed(0)
    velocities, sent = torch.zeros(50).double(), torch.zeros(50).double()
    for _ in range(40):
        x = torch.randn(50, generator=generator)
        feedback.before(x, pieces, 1.0)
        velocities += feedback.buffers.new(pieces[0], x)["velocity"]
        own = select(x, 5).bfloat16().float()  # what is rounded off stays in v
        feedback.after(Transmission(x, own, 0, pieces, 1.0))
        feedback.commit()
        sent += own
    torch.testing.assert_close(velocities, sent + feedback.state()["unsent"]["a"], rtol=0, atol=1e-4)


def test_what_is_sent_is_not_remembered() -> None:
    """Masking clears the velocity of what was sent: a codec that sends everything sends the gradient."""
    feedback = Momentum()
    for value in (1.0, 2.0, 3.0):
        x = torch.full((6,), value)
        feedback.before(x, PIECES, 1.0)
        assert x.tolist() == [value] * 6
        feedback.after(Transmission(x, x, 0, PIECES, 1.0))
        feedback.commit()


def test_what_is_not_sent_gathers_momentum() -> None:
    feedback = Momentum(MomentumOptions(0.5))
    for expected in (1.0, 2.5, 4.25):  # u = 1, 1.5, 1.75
        x = torch.ones(6)
        feedback.before(x, PIECES, 1.0)
        assert x.tolist() == [expected] * 3 + [1.0] + [expected] * 2, (
            "what lies between the tensors is not ours"
        )
        feedback.after(Transmission(x, torch.zeros(6), 0, PIECES, 1.0))
        feedback.commit()


def test_what_is_not_committed_is_not_believed() -> None:
    feedback = Momentum()
    x = torch.ones(6)
    feedback.before(x, PIECES, 1.0)
    feedback.after(Transmission(x, torch.zeros(6), 0, PIECES, 1.0))
    feedback.commit()
    before = held(feedback)
    for bad in (torch.nan, torch.inf):
        x = torch.full((6,), bad)
        feedback.before(x, PIECES, 1.0)
        feedback.after(Transmission(x, x, 0, PIECES, 1.0))
        feedback.forget()
    after = held(feedback)
    assert torch.equal(after["velocity a"], before["velocity a"])
    assert torch.equal(after["unsent a"], before["unsent a"])
    assert torch.equal(after["unsent b"], before["unsent b"])
    x = torch.ones(6)
    feedback.before(x, PIECES, 1.0)
    torch.testing.assert_close(x[:3], torch.full((3,), 1 + 1.9))


def test_it_clips_locally() -> None:
    """||g|| is cut to clip / sqrt(N), tensor by tensor, before it is added."""
    feedback = make_feedback("momentum:clip=2", world=4)
    x = torch.tensor([3.0, 0.0, 4.0, 777.0, 0.3, 0.4])
    feedback.before(x, PIECES, 1.0)
    torch.testing.assert_close(x, torch.tensor([0.6, 0.0, 0.8, 777.0, 0.3, 0.4]))
    x = torch.full((6,), 1e30)  # whose square is no float32
    make_feedback("momentum:clip=2", world=4).before(x, PIECES, 1.0)
    torch.testing.assert_close(x[:3].norm(), torch.tensor(1.0))
    for bad in (torch.nan, torch.inf):
        x = torch.tensor([1.0, bad, 1.0, 0.0, 1.0, 1.0])
        make_feedback("momentum:clip=2", world=4).before(x, PIECES, 1.0)
        assert not torch.isfinite(x[1])


def test_it_is_kept_in_unscaled_units() -> None:
    """Loss scales are powers of two: the numbers are the same to the last bit."""

    def run(scales: tuple[float, ...]) -> tuple[list[Tensor], dict[str, Tensor]]:
        feedback, generator = make_feedback("momentum:clip=1.5"), torch.Generator().manual_seed(3)
        sent = []
        for scale in scales:
            x = torch.randn(6, generator=generator) * scale
            feedback.before(x, PIECES, scale)
            own = select(x)
            feedback.after(Transmission(x, own, 0, PIECES, scale))
            feedback.commit()
            sent.append(own / scale)
        return sent, held(feedback)

    plain, scaled = run((1.0, 1.0, 1.0)), run((1024.0, 512.0, 65536.0))
    assert all(torch.equal(a, b) for a, b in zip(plain[0], scaled[0], strict=True))
    assert all(torch.equal(plain[1][name], scaled[1][name]) for name in plain[1])


def test_states_are_copies_and_go_back() -> None:
    feedback = Momentum()
    x = torch.arange(6.0)
    feedback.before(x, PIECES, 1.0)
    feedback.after(Transmission(x, select(x), 0, PIECES, 1.0))
    feedback.commit()
    state = feedback.state()
    other = Momentum()
    other.load(state)
    state["velocity"]["a"].zero_()
    assert held(other).keys() == held(feedback).keys()
    assert all(torch.equal(t, held(feedback)[name]) for name, t in held(other).items())
