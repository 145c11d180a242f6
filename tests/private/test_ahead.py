"""The offline phase goes on while answers travel: one round trip in all, whatever the number of layers."""

from __future__ import annotations

from thinwire_private.ahead import LAG
from thinwire_private.compiler import compile_graph
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import build
from thinwire_private.step import ASK, FINISH, OFFLINE
from thinwire_private.variant import VARIANTS


def test_one_round_trip_is_left_however_many_layers() -> None:
    for net in ("digits", "resnet8w", "resnet32"):
        program = compile_graph(build(net, read_bits("W4A6")), VARIANTS["ours"])
        assert program.hops(OFFLINE) <= 2


def test_answers_are_taken_when_the_triples_of_later_layers_are_under_way() -> None:
    program = compile_graph(build("resnet8w", read_bits("W4A6")), VARIANTS["ours"])
    parts = [step.part for step in program.of_phase(OFFLINE) if step.part]
    under_way = [parts[:place].count(ASK) - parts[:place].count(FINISH) for place in range(len(parts))]
    assert parts.count(ASK) == parts.count(FINISH)
    assert max(under_way) == LAG + 1
    first = parts.index(FINISH)
    assert all(count > LAG for count, part in zip(under_way[:-LAG], parts, strict=False) if part == FINISH)
    assert parts[:first] == [ASK] * (LAG + 1)
