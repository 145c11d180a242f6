"""Ring-LWE is taken where it costs fewer bytes, and nowhere else."""

from __future__ import annotations

from dataclasses import replace

import pytest

from thinwire_private.compiler import compile_graph
from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.zoo import read_net
from thinwire_private.rings import RLWE, Rings
from thinwire_private.rlwe.keys import PUBLIC_KEY_BYTES
from thinwire_private.variant import VARIANTS


def test_s7_shows_what_it_is_worth() -> None:
    graph = read_net("resnet32:list")
    before, after = (compile_graph(graph, VARIANTS[name]).total() for name in ("S6-ss8-split", "S7"))
    assert after.total_bytes * 9 < before.total_bytes


def test_each_layer_has_the_cheaper_form() -> None:
    graph = read_net("resnet32:list")
    rings = Rings(graph, VARIANTS["ours"], 1)
    forms = {layer.name: rings.form(layer) for layer in graph.layers}
    assert forms.pop("fc") != RLWE  # 15 kB by OT, 60 by ring-LWE
    assert set(forms.values()) == {RLWE}
    # Changing any one layer back to OT costs more.
    program = compile_graph(graph, VARIANTS["ours"])
    by_ot = compile_graph(graph, VARIANTS["ours-ot"])
    for name in forms:
        ours, theirs = (
            sum(row.traffic.total_bytes for row in each.costs() if row.layer == name)
            for each in (program, by_ot)
        )
        assert ours < theirs


def test_a_network_too_small_to_pay_for_the_key_does_without(small: Graph) -> None:
    program = compile_graph(small, VARIANTS["ours"])
    assert "rlwe" not in {step.operator for step in program.steps}
    assert program.total().total_bytes < 2 * PUBLIC_KEY_BYTES


def test_widths_that_no_secure_q_has_room_for_go_by_ot() -> None:
    graph = read_net("resnet8w:W16A16")
    rings = Rings(graph, VARIANTS["ours"], 1)
    assert any(rings.rlwe[layer.name] is None for layer in graph.layers)
    assert all(rings.form(layer) != RLWE for layer in graph.layers if rings.rlwe[layer.name] is None)


def test_ring_lwe_without_an_offline_phase_is_refused() -> None:
    with pytest.raises(ModelError, match="set split"):
        replace(VARIANTS["ours"], split=False)
