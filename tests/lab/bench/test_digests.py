"""Digests that prove a rearrangement: same twice, other for another codec, resumed as if never stopped."""

from __future__ import annotations

import pytest
import torch

from thinwire.codecs.catalog import CATALOG
from thinwire.texts import FEEDBACKS, SCHEDULES, first_word
from thinwire_lab.bench import digests as lab
from thinwire_lab.bench.digests import WORLDS, cases, digests


def test_all_codecs_memories_and_controls_are_there() -> None:
    texts = cases()
    links = {first_word(link) for text in texts for link in text.partition("@")[0].split(">>")}
    assert links == set(CATALOG)
    for what, known in (("feedback", FEEDBACKS), ("schedule", SCHEDULES[1:])):
        assert {name for name in known if any(f"{what}={name}" in text for text in texts)} == set(known)
    assert len(set(texts)) == len(texts)


def test_resumed_equals_unresumed_and_codecs_differ() -> None:
    texts = ("terngrad", "topk:0.05 @ schedule=guard:window=2")
    found = list(digests(texts, steps=6))
    assert [(digest.codec, digest.world) for digest in found] == [(t, w) for t in texts for w in WORLDS]
    assert all(digest.resumed for digest in found)
    assert len({digest.digest for digest in found}) == len(found)
    assert found == list(digests(texts, steps=6))
    assert found == list(digests(texts, "reference", steps=6)), "kernels give the same bits"


def test_a_single_bit_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    before = next(digests(("dense",), steps=4))
    plain = lab.made

    def flipped(spec: lab.Spec, step: int, rank: int) -> torch.Tensor:
        gradient = plain(spec, step, rank)
        if (spec.name, step) == ("bias", 3):
            gradient.view(torch.int32)[5] ^= 1
        return gradient

    monkeypatch.setattr(lab, "made", flipped)
    assert next(digests(("dense",), steps=4)).digest != before.digest


def test_a_state_that_is_not_taken_shows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lab, "load_state", lambda engine, state: None)
    assert not next(digests(("topk:0.05",), steps=4)).resumed
