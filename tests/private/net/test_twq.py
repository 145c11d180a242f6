"""Model files: what is written is read, and nothing else is ever accepted."""

from __future__ import annotations

import hashlib
import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinwire_private.errors import ModelError
from thinwire_private.net.oracle import run
from thinwire_private.net.twq import (
    HEAD,
    QuantizedModel,
    canonical,
    from_bytes,
    read_twq,
    to_bytes,
    to_facts,
    write_twq,
)
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build, random_pictures, with_random_weights

GRAPH = with_random_weights(build("digits", read_bits("W3A4R6")))
RAW = to_bytes(QuantizedModel(GRAPH, {"accuracy": 0.5}))


def sealed(change: Any) -> bytes:
    """The file with its description changed and a checksum that fits: what a careful forger would write."""
    _, _, length = HEAD.unpack_from(RAW)
    facts = json.loads(RAW[HEAD.size : HEAD.size + length])
    change(facts)
    text = json.dumps(facts).encode()
    body = RAW[:8] + struct.pack("<Q", len(text)) + text + RAW[HEAD.size + length : -32]
    return body + hashlib.sha256(body).digest()


@pytest.mark.parametrize("name", ["digits", "minionn", "resnet8w"])
def test_what_is_written_is_read(name: str, tmp_path: Path) -> None:
    graph = with_random_weights(build(name, read_bits("W3A6R8"))).fit_accumulators("weights")
    write_twq(tmp_path / "m.twq", QuantizedModel(graph, {"task": "none"}))
    model = read_twq(tmp_path / "m.twq")
    assert model.notes == {"task": "none"}
    assert canonical(to_facts(model.graph)) == canonical(to_facts(graph))
    assert canonical(to_facts(graph.public())) == canonical(to_facts(graph))
    assert canonical(to_facts(graph.fast())) != canonical(to_facts(graph))
    for mine, theirs in zip(graph.layers, model.graph.layers, strict=True):
        np.testing.assert_array_equal(mine.weight, theirs.weight)
    if name == "digits":
        x = random_pictures(graph, 3)
        np.testing.assert_array_equal(run(model.graph, x), run(graph, x))


def test_another_version_is_refused() -> None:
    raw = RAW[:4] + struct.pack("<I", 2) + RAW[8:]
    with pytest.raises(ModelError, match="version 2, this thinwire reads version 1: export it again"):
        from_bytes(raw)


def test_a_missing_file_and_other_files_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match="cannot be read"):
        read_twq(tmp_path / "none.twq")
    (tmp_path / "x.twq").write_bytes(b"PK\x03\x04" * 100)
    with pytest.raises(ModelError, match=r"x\.twq: this is not a \.twq model"):
        read_twq(tmp_path / "x.twq")


def test_every_flipped_bit_and_every_cut_is_noticed() -> None:
    generator = np.random.default_rng(0)
    places = [*range(200), *generator.integers(0, len(RAW), 1800)]
    for place in places:
        damaged = bytearray(RAW)
        damaged[place] ^= 1 << generator.integers(8)
        with pytest.raises(ModelError):
            from_bytes(bytes(damaged))
    for length in generator.integers(0, len(RAW), 300):
        with pytest.raises(ModelError):
            from_bytes(RAW[:length])
    with pytest.raises(ModelError):
        from_bytes(RAW + b"\0")


def test_widths_that_overflow_are_refused() -> None:
    def narrow(facts: Any) -> None:
        for node in facts["graph"]["nodes"]:
            if node["name"] == "conv3":
                node["bits"] -= 1

    with pytest.raises(ModelError, match=r"^node 'conv3' has 15 bits, its sums need 16 and would overflow"):
        from_bytes(sealed(narrow))

    def thin(facts: Any) -> None:
        facts["graph"]["nodes"][1]["weight_bits"] = 7

    with pytest.raises(ModelError, match="'conv1' has weights outside its 7 bits"):
        from_bytes(sealed(thin))


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(1 << 70), 1 << 70),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(-3, 1 << 40), max_size=4),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


def leaves(facts: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a description."""
    inner = facts.items() if isinstance(facts, dict) else enumerate(facts) if isinstance(facts, list) else ()
    return [path] * bool(path) + [place for name, sub in inner for place in leaves(sub, (*path, name))]


PLACES = leaves(json.loads(RAW[HEAD.size : HEAD.size + HEAD.unpack_from(RAW)[2]]))


@given(st.data())
def test_forged_descriptions_end_in_a_clear_error_or_in_a_sound_graph(data: st.DataObject) -> None:
    """400 forgeries a run (16 for each of 25 examples): never another exception, never a hang."""
    for _ in range(16):
        place, junk = data.draw(st.sampled_from(PLACES)), data.draw(JUNK)

        def forge(facts: Any, place: tuple[Any, ...] = place, junk: Any = junk) -> None:
            *way, last = place
            for name in way:
                facts = facts[name]
            facts[last] = junk

        try:
            model = from_bytes(sealed(forge))
        except ModelError:
            continue
        run(model.graph, random_pictures(model.graph, 1))
