"""A receiver that cheats in its trees or choices is caught in the set-up."""

from __future__ import annotations

import numpy as np
import pytest
from pair import both

from thinwire.errors import LinkError
from thinwire_private.link.channel import memory_pair
from thinwire_private.message import CLIENT, SERVER
from thinwire_private.ot import softspoken
from thinwire_private.ot.consistency import CHECK_OTS, check_bytes, prove, verify
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Bytes, Prg
from thinwire_private.ot.suite import Suite

KINDS = ["softspoken:1", "softspoken:4", "softspoken:8"]


def ends(kind: str) -> tuple[softspoken.Sender, softspoken.Receiver]:
    chosen = OtKind.read(kind)
    sender = softspoken.Sender(chosen, b"session", Prg(b"s" * 16))
    receiver = softspoken.Receiver(chosen, b"session", Prg(b"r" * 16))
    sender.finish(memoryview(receiver.reply(memoryview(sender.request))))
    return sender, receiver


@pytest.mark.parametrize("kind", KINDS)
def test_an_honest_receiver_passes_and_ots_go_on(kind: str) -> None:
    sender, receiver = ends(kind)
    message = prove(receiver, b"session", Prg(b"p" * 16))
    assert len(message) == check_bytes(OtKind.read(kind))
    verify(sender, b"session", OtKind.read(kind), memoryview(message))
    rows, batch = receiver.extend(np.ones(10, np.uint8))
    other = sender.extend(rows, 10)
    assert other.first_index == batch.first_index == CHECK_OTS
    assert np.array_equal(other.rows.reshape(10, 16) ^ sender.delta, batch.rows.reshape(10, 16))


@pytest.mark.parametrize("kind", KINDS)
def test_choices_that_differ_between_trees_are_caught(kind: str) -> None:
    sender, receiver = ends(kind)
    message = bytearray(prove(receiver, b"session", Prg(b"p" * 16)))
    first = (
        np.unpackbits(sender.delta, bitorder="little").reshape(-1, OtKind.read(kind).k).any(axis=1).argmax()
    )
    message[int(first) * CHECK_OTS // 8] ^= 1  # one choice, in one tree whose part of Delta is not zero
    with pytest.raises(LinkError, match="not consistent"):
        verify(sender, b"session", OtKind.read(kind), memoryview(message))


def test_a_false_proof_is_caught() -> None:
    sender, receiver = ends("softspoken:8")
    message = bytearray(prove(receiver, b"session", Prg(b"p" * 16)))
    message[-1] ^= 1
    with pytest.raises(LinkError, match="not consistent"):
        verify(sender, b"session", OtKind.read("softspoken:8"), memoryview(message))


def test_a_receiver_with_damaged_trees_is_caught_in_the_set_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """It seals wrong sums in a level of every tree: the sender would grow other leaves."""
    grow = softspoken.grow

    def cheating(roots: Bytes, k: int, doubler: softspoken.Doubler) -> tuple[Bytes, Bytes]:
        leaves, sums = grow(roots, k, doubler)
        return leaves, sums ^ np.uint8(1)

    monkeypatch.setattr(softspoken, "grow", cheating)
    channels, kind = memory_pair(20.0), OtKind.read("softspoken:8")
    with pytest.raises(LinkError, match="not consistent"):
        both(
            lambda: Suite(kind, SERVER, channels[SERVER], Prg(b"a" * 16)),
            lambda: Suite(kind, CLIENT, channels[CLIENT], Prg(b"b" * 16)),
        )
