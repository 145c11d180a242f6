"""Facts: the public part of a graph as plain JSON, for the model file and for what two parties compare.

Everything but weights and biases. Reading trusts nothing: whatever is wrong becomes a ModelError.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import fields
from types import MappingProxyType
from typing import Any

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Add, Conv, Input, Linear, MaxPool, Node, Output, Requant, SumPool
from thinwire_private.net.value import Value

MAX_NODES = 10_000
MAX_NUMBER = 1 << 31
ALWAYS = ("name", "sources", "taken", "value", "weight", "bias")


def _count(x: Any) -> int:
    if type(x) is not int or not 0 <= x < MAX_NUMBER:
        raise ModelError(f"{x!r} is not a count")
    return x


def _exponent(x: Any) -> int:
    if type(x) is not int or abs(x) >= 1024:
        raise ModelError(f"{x!r} is not an exponent")
    return x


def _flag(x: Any) -> bool:
    if type(x) is not bool:
        raise ModelError(f"{x!r} is not true or false")
    return x


def _name(x: Any) -> str:
    if type(x) is not str or not x.isprintable() or not 0 < len(x) <= 200:
        raise ModelError(f"{x!r} is not a name")
    return x


def _pair(x: Any) -> tuple[int, int]:
    first, second = x
    return _count(first), _count(second)


KINDS: Mapping[str, type[Node]] = MappingProxyType(
    {kind.kind: kind for kind in (Input, Conv, Linear, Add, SumPool, MaxPool, Requant, Output)}
)
READERS: Mapping[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "exponent": _exponent,
        "relu": _flag,
        "clamp": _flag,
        "argmax": _flag,
        "shifts": _pair,
        **dict.fromkeys(("weight_bits", "kernel", "stride", "padding", "shift"), _count),
    }
)


def to_facts(graph: Graph) -> dict[str, Any]:
    """The public part of a graph."""
    nodes = [
        {
            "kind": node.kind,
            "name": node.name,
            "sources": list(node.sources),
            "shape": list(node.value.shape),
            "bits": node.value.bits,
            "signed": node.value.signed,
            **{name: getattr(node, name) for name in _own_fields(type(node))},
        }
        for node in graph
    ]
    return {"name": graph.name, "acc_rule": graph.acc_rule, "nodes": nodes}


def from_facts(facts: Any) -> Graph:
    """The graph (without weights) that `to_facts` told of."""
    try:
        if len(facts["nodes"]) > MAX_NODES:
            raise ModelError(f"{len(facts['nodes'])} nodes are more than {MAX_NODES}")
        values: dict[str, Value] = {}
        nodes = []
        for told in facts["nodes"]:
            node = _node(told, values)
            values[node.name] = node.value
            nodes.append(node)
        return Graph(_name(facts["name"]), tuple(nodes), str(facts["acc_rule"]))
    except ModelError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"this is no description of a network ({_reason(error)}): export the model again"
        ) from error


def digest(graph: Graph) -> bytes:
    """SHA-256 of the public part: equal on both sides if and only if they are about to run the same graph."""
    return hashlib.sha256(canonical(to_facts(graph))).digest()


def canonical(facts: Any) -> bytes:
    """JSON with one way of writing everything."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def _node(told: Any, values: Mapping[str, Value]) -> Node:
    kind = KINDS[told["kind"]]
    sources = tuple(_name(source) for source in told["sources"])
    value = Value(tuple(_count(side) for side in told["shape"]), _count(told["bits"]), _flag(told["signed"]))
    own = {name: READERS[name](told[name]) for name in _own_fields(kind)}
    return kind(_name(told["name"]), sources, tuple(values[source] for source in sources), value, **own)


def _own_fields(kind: type[Node]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in ALWAYS)


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)
