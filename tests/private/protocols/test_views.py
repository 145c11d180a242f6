"""Views: what a party receives and keeps does not depend on the other's secret. Missing masks are caught."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from pair import Pair, both

from thinwire_private.message import CLIENT, SERVER
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Prg
from thinwire_private.protocols.b2a import B2A, Blend, Mux
from thinwire_private.protocols.comparison import Comparison, Forest, Mill, Tree
from thinwire_private.protocols.extend import ONE_COT, SIRNN, Extend, Truncate
from thinwire_private.protocols.linear import ActivationBits, Shape, Sirnn, SirnnSwapped, WeightBits
from thinwire_private.protocols.operator import Operator, Party
from thinwire_private.protocols.pool import Argmax
from thinwire_private.protocols.requant import Requantize
from thinwire_private.protocols.sign import Relu, Wrap, WrapMsbKnown

COUNT = 4096
WIDTH = 10
LIMIT = 255 + 6 * np.sqrt(2 * 255)  # of a chi-square with 255 degrees of freedom: one false alarm in 10^8


def number(secret: int) -> np.ndarray:
    """All elements alike: what differs between two secrets differs everywhere."""
    return np.full(COUNT, secret, np.uint64)


def bit(secret: int) -> np.ndarray:
    return np.full(COUNT, secret & 1, np.uint8)


def spread(secret: int, shape: tuple[int, int]) -> np.ndarray:
    return np.full(shape, secret, np.uint64)


SHAPE = Shape(8, 12, 64, 3)
Receive = Callable[..., memoryview]
RunParty = Callable[[Operator, Party, int], object]
PLAIN: RunParty = lambda op, party, secret: op.run(party, number(secret))  # type: ignore[attr-defined]  # noqa: E731
PRODUCT: RunParty = lambda op, party, secret: op.run(  # type: ignore[attr-defined]  # noqa: E731
    party,
    np.full((SHAPE.d1, SHAPE.d2), secret % 4 - 2) if party.is_server else None,
    spread(0 if party.is_server else secret, (SHAPE.d2, SHAPE.d3)),
)


def operators(kind: OtKind) -> dict[str, tuple[Operator, RunParty]]:
    trees = Forest((Tree(4), Tree(6, with_eq=True), Tree(6, with_eq=True)), (((1, 0), (2, 0)),), 2)
    return {
        "digit": (Mill(COUNT, 4, kind), lambda op, p, s: op.run(p, [number(s % 16)])),
        "mill": (Mill(COUNT, WIDTH, kind), lambda op, p, s: op.run(p, [number(s)])),
        "forest": (
            Comparison(COUNT, trees, kind),
            lambda op, p, s: op.run(p, [number(s % 16), number(s % 64), number(s % 64)]),
        ),
        "wrap": (Wrap(COUNT, WIDTH, kind), PLAIN),
        "wrap msb": (WrapMsbKnown(COUNT, WIDTH, kind), PLAIN),
        "b2a": (B2A(COUNT, WIDTH, kind), lambda op, p, s: op.run(p, bit(s))),
        "mux": (Mux(COUNT, WIDTH, kind), lambda op, p, s: op.run(p, bit(s), number(s))),
        "mux chosen": (Mux(COUNT, WIDTH, kind, True), lambda op, p, s: op.run(p, bit(s), number(s))),
        "relu": (Relu(COUNT, WIDTH, kind), PLAIN),
        "extend": (Extend(COUNT, WIDTH, 19, kind), PLAIN),
        "extend sirnn": (Extend(COUNT, WIDTH, 19, kind, SIRNN), PLAIN),
        "extend one cot": (Extend(COUNT, WIDTH, 19, kind, ONE_COT), PLAIN),
        "truncate": (Truncate(COUNT, WIDTH, 5, kind), PLAIN),
        "requant": (Requantize(COUNT, WIDTH, 3, 4, 5, kind), PLAIN),
        "requant fused": (Requantize(COUNT, WIDTH, 3, 4, 5, kind, fused=True), PLAIN),
        "blend": (Blend(COUNT, WIDTH, 700, kind), lambda op, p, s: op.run(p, bit(s), number(s), bit(s))),
        "argmax": (Argmax(COUNT // 4, 4, WIDTH, kind), lambda op, p, s: op.run(p, number(s).reshape(4, -1))),
        "weight bits": (WeightBits(SHAPE, 14, kind), PRODUCT),
        "activation bits": (ActivationBits(SHAPE, 7, 14, kind), PRODUCT),
        "sirnn": (Sirnn(SHAPE, 6, 13, kind, SIRNN), PRODUCT),
        "sirnn swapped": (SirnnSwapped(SHAPE, 6, 13, kind, SIRNN), PRODUCT),
    }


NAMES = list(operators(OtKind()))


def views(pair: Pair, operator: Operator, run: RunParty, secrets: tuple[int, int]) -> list[list[np.ndarray]]:
    """For each party: the messages it received, then its output share, as bytes."""
    received: list[list[np.ndarray]] = [[], []]
    parties = (pair.server, pair.client)
    for role, party in enumerate(parties):
        receive = type(party.channel).receive

        def record(
            num_bytes: int, role: int = role, party: Party = party, receive: Receive = receive
        ) -> memoryview:
            message = receive(party.channel, num_bytes)
            if num_bytes:
                received[role].append(np.frombuffer(message, np.uint8))
            return message

        party.channel.receive = record  # type: ignore[method-assign]
    try:
        shares = both(
            lambda: run(operator, pair.server, secrets[SERVER]),
            lambda: run(operator, pair.client, secrets[CLIENT]),
        )
    finally:
        for party in parties:
            del party.channel.receive
    for role, share in enumerate(shares):
        for each in share if isinstance(share, list) else [share]:
            received[role].append((np.asarray(each).reshape(-1) & 0xFF).astype(np.uint8))
    return received


def distance(a: np.ndarray, b: np.ndarray) -> float:
    """Chi-square of two samples of bytes of equal size."""
    x, y = (np.bincount(data, minlength=256).astype(float) for data in (a, b))
    seen = (x + y) > 0
    return float(((x - y)[seen] ** 2 / (x + y)[seen]).sum())


def largest_distance(pair: Pair, name: str, role: int, runs: int = 4) -> float:
    """How well party `role` can tell two secrets of its peer apart."""
    operator, run = operators(pair.kind)[name]
    own, samples = 5, []
    for secret in (3, 910):  # they differ in their lowest bit, lowest digit and top bit
        secrets = (own, secret) if role == SERVER else (secret, own)
        each = [views(pair, operator, run, secrets)[role] for _ in range(runs)]
        samples.append([np.concatenate(parts) for parts in zip(*each, strict=True)])
    return max(distance(a, b) for a, b in zip(*samples, strict=True))


@pytest.fixture(scope="module", params=["kk13+iknp", "softspoken:8"])
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.mark.parametrize("role", [SERVER, CLIENT])
@pytest.mark.parametrize("name", NAMES)
def test_a_view_does_not_depend_on_the_peers_secret(pair: Pair, name: str, role: int) -> None:
    assert largest_distance(pair, name, role) < LIMIT


@pytest.mark.parametrize("name", ["digit", "wrap msb", "forest"])
def test_a_missing_mask_of_the_server_is_caught(
    pair: Pair, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Prg, "bits", lambda self, count: np.zeros(count, np.uint8))
    assert largest_distance(pair, name, CLIENT) > 10 * LIMIT


@pytest.mark.parametrize(("name", "role"), [("b2a", CLIENT), ("mux", SERVER), ("extend one cot", SERVER)])
def test_a_missing_pad_is_caught(pair: Pair, name: str, role: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_pads(party: Party, batch: object) -> tuple[np.ndarray, np.ndarray]:
        return np.zeros(COUNT, np.uint64), np.zeros(COUNT, np.uint64)

    monkeypatch.setattr(Party, "sender_pads", no_pads)
    assert largest_distance(pair, name, role) > 10 * LIMIT


def test_a_missing_share_of_a_chosen_ot_is_caught(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Prg, "ring", lambda self, count, width: np.zeros(count, np.uint64))
    assert largest_distance(pair, "mux chosen", CLIENT) > 10 * LIMIT
