"""The model file `.twq`: a graph with its weights, versioned, checksummed, nothing in it is ever executed.

    offset  bytes   what
    0       4       "TWQ\\n"
    4       4       version, little-endian
    8       8       length of the description, little-endian
    16      n       JSON in UTF-8: {"graph": facts, "arrays": [[node, field, type], ...], "notes": {...}}
    16 + n  ...     the arrays in that order, C order, little-endian; shapes follow from the graph
    end-32  32      SHA-256 of everything before

A reader MUST refuse another version, length or checksum. Notes MUST NOT change what is computed. `facts` is
the public part of a graph: all but weights and biases. It is also what two parties compare. Reading trusts
nothing: whatever is wrong becomes a ModelError.
"""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from thinwire_private.errors import ModelError
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import (
    Add,
    Conv,
    GraphNode,
    Input,
    IntArray,
    Linear,
    MaxPool,
    Output,
    Requant,
    SumPool,
    Value,
    Weighted,
)

MAX_NODES = 10_000
MAX_NUMBER = 1 << 31
ALWAYS = ("name", "sources", "taken", "value", "weight", "bias")
KINDS: Mapping[str, type[GraphNode]] = MappingProxyType(
    {kind.kind: kind for kind in (Input, Conv, Linear, Add, SumPool, MaxPool, Requant, Output)}
)
MAGIC = b"TWQ\n"
VERSION = 1
HEAD = struct.Struct("<4sIQ")
CHECKSUM_BYTES = hashlib.sha256().digest_size
MAX_DESCRIPTION_BYTES = 1 << 26
TYPES = ("<i1", "<i2", "<i4", "<i8")


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
    """The graph (without weights) that `to_facts` gave."""
    try:
        if len(facts["nodes"]) > MAX_NODES:
            raise ModelError(f"{len(facts['nodes'])} nodes are more than {MAX_NODES}")
        values: dict[str, Value] = {}
        nodes = []
        for row in facts["nodes"]:
            node = _node(row, values)
            values[node.name] = node.value
            nodes.append(node)
        return Graph(_name(facts["name"]), tuple(nodes), str(facts["acc_rule"]))
    except ModelError:
        raise
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError, RecursionError) as error:
        raise ModelError(
            f"this is not the description of a network ({_reason(error)}): export the model again"
        ) from error


def canonical(facts: Any) -> bytes:
    """JSON with one way of writing everything: two parties compare these bytes."""
    return json.dumps(facts, sort_keys=True, separators=(",", ":")).encode()


def _node(row: Any, values: Mapping[str, Value]) -> GraphNode:
    kind = KINDS[row["kind"]]
    sources = tuple(_name(source) for source in row["sources"])
    value = Value(tuple(_count(side) for side in row["shape"]), _count(row["bits"]), _flag(row["signed"]))
    own = {name: READERS[name](row[name]) for name in _own_fields(kind)}
    return kind(_name(row["name"]), sources, tuple(values[source] for source in sources), value, **own)


def _own_fields(kind: type[GraphNode]) -> tuple[str, ...]:
    return tuple(field.name for field in fields(kind) if field.name not in ALWAYS)


def _reason(error: Exception) -> str:
    return f"{error} is missing" if isinstance(error, KeyError) else str(error)


@dataclass(frozen=True)
class QuantizedModel:
    """A graph with weights, and notes about how it was made."""

    graph: Graph
    notes: Mapping[str, Any] = field(default_factory=dict)


def write_twq(path: Path, model: QuantizedModel) -> None:
    """Write a model file; the graph must have weights."""
    path.write_bytes(to_bytes(model))


def read_twq(path: Path) -> QuantizedModel:
    """Read a model file; refuses whatever is not exactly one."""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read ({error.strerror}): name a .twq file") from error
    try:
        return from_bytes(raw)
    except ModelError as error:
        raise ModelError(f"{path}: {error}") from error


def to_bytes(model: QuantizedModel) -> bytes:
    """The bytes of a model file."""
    arrays, table = [], []
    for layer in model.graph.layers:
        bias = np.zeros(layer.weight_shape[0], np.int64) if layer.bias is None else layer.bias
        for name, array in (("weight", layer.matrix()), ("bias", bias)):
            kind = _type_of(array)
            table.append([layer.name, name, kind])
            arrays.append(array.astype(kind).tobytes())
    facts = {"graph": to_facts(model.graph), "arrays": table, "notes": dict(model.notes)}
    description = canonical(facts)
    body = HEAD.pack(MAGIC, VERSION, len(description)) + description + b"".join(arrays)
    return body + hashlib.sha256(body).digest()


def from_bytes(raw: bytes) -> QuantizedModel:
    """The model in these bytes.

    1. magic and version;  2. the checksum;  3. the description;  4. the arrays, whose sizes follow from it.
    """
    if len(raw) < HEAD.size + CHECKSUM_BYTES or not raw.startswith(MAGIC):
        raise ModelError("this is not a .twq model: make one with `thinwire private train`")
    _, version, length = HEAD.unpack_from(raw)
    if version != VERSION:
        raise ModelError(
            f"the model has version {version}, this thinwire reads version {VERSION}: export it again"
        )
    body, checksum = raw[:-CHECKSUM_BYTES], raw[-CHECKSUM_BYTES:]
    if hashlib.sha256(body).digest() != checksum:
        raise ModelError("the model is damaged or cut short (its checksum differs): copy it again")
    if length > min(MAX_DESCRIPTION_BYTES, len(body) - HEAD.size):
        raise ModelError(
            f"the model's description claims {length} bytes, which are not there: export it again"
        )
    facts = _description(body[HEAD.size : HEAD.size + length])
    graph = from_facts(facts["graph"])
    return QuantizedModel(_filled(graph, facts["arrays"], body[HEAD.size + length :]), facts["notes"])


def _description(raw: bytes) -> dict[str, Any]:
    try:
        facts = json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise ModelError("the model's description is not JSON: export it again") from error
    wanted = {"graph": dict, "arrays": list, "notes": dict}
    if type(facts) is not dict or any(type(facts.get(name)) is not kind for name, kind in wanted.items()):
        raise ModelError("the model's description lacks graph, arrays or notes: export it again")
    return facts


def _filled(graph: Graph, table: list[Any], raw: bytes) -> Graph:
    expected = [(layer, name) for layer in graph.layers for name in ("weight", "bias")]
    if [row[:2] if type(row) is list else None for row in table] != [
        [layer.name, name] for layer, name in expected
    ]:
        raise ModelError("the model's list of arrays is not that of its layers: export it again")
    kinds = [row[2] if len(row) == 3 and row[2] in TYPES else None for row in table]
    if None in kinds:
        raise ModelError(
            f"the model has arrays of unknown types, known are {', '.join(TYPES)}: export it again"
        )
    types = [np.dtype(kind) for kind in kinds if kind is not None]
    counts = [layer.dims[0] * (layer.dims[1] if name == "weight" else 1) for layer, name in expected]
    sizes = [count * kind.itemsize for count, kind in zip(counts, types, strict=True)]
    if sum(sizes) != len(raw):
        raise ModelError(f"the model's arrays have {len(raw)} bytes instead of {sum(sizes)}: export it again")
    found: dict[tuple[str, str], IntArray] = {}
    offset = 0
    for (layer, name), count, kind, size in zip(expected, counts, types, sizes, strict=True):
        found[layer.name, name] = np.frombuffer(raw, kind, count, offset).astype(np.int64)
        offset += size

    def full(layer: Weighted) -> Weighted:
        weight = found[layer.name, "weight"].reshape(layer.weight_shape)
        return replace(layer, weight=weight, bias=found[layer.name, "bias"])

    layers = {layer.name: full(layer) for layer in graph.layers}
    return graph.map(lambda node: layers.get(node.name, node))


def _type_of(array: IntArray) -> str:
    low, high = int(array.min()), int(array.max())
    return next(kind for kind in TYPES if np.iinfo(kind).min <= low and high <= np.iinfo(kind).max)
