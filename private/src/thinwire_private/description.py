"""The description: what is public of a model and how it is run, as the server tells it in the handshake."""

from __future__ import annotations

import json
from dataclasses import asdict

from thinwire_private.errors import ModelError
from thinwire_private.link.handshake import describe_digest
from thinwire_private.net.facts import canonical, from_facts, to_facts
from thinwire_private.net.graph import Graph
from thinwire_private.variant import Variant


def describe(graph: Graph, variant: Variant) -> bytes:
    """Architecture, bit widths, shifts, accumulator widths and protocol switches; no weights, no biases."""
    return canonical({"graph": to_facts(graph), "variant": asdict(variant)})


def digest(graph: Graph, variant: Variant) -> bytes:
    """What a client that insists on a model and a variant compares."""
    return describe_digest(describe(graph, variant))


def read_description(data: bytes) -> tuple[Graph, Variant]:
    """The graph without weights, and the variant; trusts nothing."""
    try:
        told = json.loads(data)
        graph, switches = told["graph"], told["variant"]
        known = asdict(Variant("any"))
        if set(switches) != set(known) or any(
            type(switches[name]) is not type(value) for name, value in known.items()
        ):
            raise ModelError("the server's protocol switches are not ours: install the same thinwire")
        return from_facts(graph), Variant(**switches)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        if isinstance(error, ModelError):
            raise
        raise ModelError(
            "the server's description cannot be read: install the same thinwire on both sides"
        ) from None
