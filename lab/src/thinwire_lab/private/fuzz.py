"""The fuzzer: damaged bytes into all that reads a peer's bytes; only a ThinwireError may come out, in time.

Victims, each a reader of bytes: `frames` (a channel over a socket), `server` and `client` (the handshake),
`model_file` and `model_facts`, `rlwe` (key, ciphertexts, answers of a product by ring-LWE), `requests` (what
a server is asked), `session` (a whole private prediction, one message of the peer damaged). The damage is
within a frame whose checksum fits, as a broken or hostile peer would send it: the party that reads it must
refuse it in one sentence or compute a wrong answer; neither party may crash or hang.
"""

from __future__ import annotations

import hashlib
import random
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import cast

from thinwire.errors import LinkError, ThinwireError
from thinwire_lab.private.records import BenchOptions, Row, Say
from thinwire_private.link.channel import Channel, memory_pair, pack_header
from thinwire_private.link.handshake import (
    ANY,
    Hello,
    Request,
    RequestKind,
    describe_digest,
    meet_client,
    meet_server,
)
from thinwire_private.link.stream import SocketChannel
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Weighted
from thinwire_private.net.twq import (
    CHECKSUM_BYTES,
    QuantizedModel,
    from_bytes,
    from_facts,
    to_bytes,
    to_facts,
)
from thinwire_private.net.widths import read_bits
from thinwire_private.net.zoo import Sketch, build, random_pictures, with_random_weights
from thinwire_private.ot.primitives import Prg
from thinwire_private.ot.suite import Suite
from thinwire_private.protocols.operator import Party
from thinwire_private.protocols.rlwe_product import FactorCache, RlweProduct
from thinwire_private.rlwe.keys import PUBLIC_KEY_BYTES, PublicKey, SecretKey
from thinwire_private.sessions import ClientSession, ServerSession
from thinwire_private.variant import variant

EDGES = (0, 1, 0x7F, 0x80, 0xFF)
VARIANTS = ("ours", "B1")
RECEIVES = 60  # about as many messages reach a party of the small network
SESSION_TIMEOUT_S = 3.0
FUZZ_CASES = 120_000
LIMIT_S = 30.0  # a case that takes longer hangs
TIMEOUT_S = 2.0
Victim = Callable[[random.Random], None]
SHARES: Mapping[str, float] = MappingProxyType(  # of all cases
    {
        "frames": 0.3,
        "server": 0.2,
        "client": 0.2,
        "model_file": 0.1,
        "model_facts": 0.09,
        "rlwe": 0.05,
        "requests": 0.05,
        "session": 0.01,
    }
)


def mutate(data: bytes, dice: random.Random) -> bytes:
    """The bytes with one to three damages; may be empty, and is seldom the same."""
    for _ in range(dice.choice((1, 1, 1, 2, 3))):
        data = dice.choice(DAMAGES)(data, dice)
    return data


def _flip(data: bytes, dice: random.Random) -> bytes:
    if not data:
        return b"\0"
    place = dice.randrange(len(data))
    return data[:place] + bytes([data[place] ^ 1 << dice.randrange(8)]) + data[place + 1 :]


def _cut(data: bytes, dice: random.Random) -> bytes:
    return data[: dice.randrange(len(data) + 1)]


def _drop(data: bytes, dice: random.Random) -> bytes:
    start = dice.randrange(len(data) + 1)
    return data[:start] + data[start + dice.randrange(1, 9) :]


def _insert(data: bytes, dice: random.Random) -> bytes:
    place = dice.randrange(len(data) + 1)
    return data[:place] + dice.randbytes(dice.randrange(1, 9)) + data[place:]


def _edge(data: bytes, dice: random.Random) -> bytes:
    """A run of edge values, as lengths and counts love them."""
    place, run = dice.randrange(len(data) + 1), dice.choice((1, 2, 4, 8))
    return data[:place] + bytes([dice.choice(EDGES)]) * run + data[place + run :]


def _swap(data: bytes, dice: random.Random) -> bytes:
    first, second = sorted(dice.randrange(len(data) + 1) for _ in range(2))
    return data[second:] + data[first:second] + data[:first]


def _noise(data: bytes, dice: random.Random) -> bytes:
    return dice.randbytes(len(data))


DAMAGES: tuple[Callable[[bytes, random.Random], bytes], ...] = (
    _flip,
    _cut,
    _drop,
    _insert,
    _edge,
    _swap,
    _noise,
)


class DamagedChannel(Channel):
    """A channel that damages the message received at one place."""

    def __init__(self, inner: Channel, place: int, dice: random.Random) -> None:
        super().__init__()
        self._inner, self._place, self._dice = inner, place, dice

    def abort(self, reason: str) -> None:
        self._inner.abort(reason)

    def close(self) -> None:
        self._inner.close()

    def _push(self, message: memoryview) -> None:
        self._inner.send(message)

    def _pull(self, num_bytes: int) -> memoryview:
        message = self._inner.receive(num_bytes)
        self._place -= 1
        if self._place != 0:
            return message
        damaged = mutate(bytes(message), self._dice)
        if len(damaged) != num_bytes and self._dice.random() < 0.8:  # mostly a length that is due
            damaged = damaged[:num_bytes].ljust(num_bytes, b"\xff")
        if len(damaged) != num_bytes:
            raise LinkError(f"the peer sent {len(damaged)} bytes where {num_bytes} were due")
        return memoryview(damaged)


def session(dice: random.Random) -> None:
    """Set-up, a prepared query and its answer, with one damage on one side; raises what a party met."""
    chosen, graph = variant(dice.choice(VARIANTS)), small_graph()
    ends: list[Channel] = list(memory_pair(SESSION_TIMEOUT_S))
    victim = dice.randrange(2)
    ends[victim] = DamagedChannel(ends[victim], dice.randrange(1, RECEIVES), dice)
    failures: list[BaseException] = []

    def serve() -> None:
        server = ServerSession(graph, chosen, ends[0], bytes(32))
        server.setup()
        server.prepare(1)
        server.query(1)

    def visit() -> None:
        client = ClientSession(graph.public(), chosen, ends[1], bytes(32))
        client.setup()
        client.prepare(1)
        client.query(random_pictures(graph, 1))

    def guarded(role: int) -> None:
        try:
            (serve, visit)[role]()
        except BaseException as error:
            failures.append(error)
            ends[role].abort("stopped")

    threads = [threading.Thread(target=guarded, args=(role,)) for role in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def rlwe(dice: random.Random) -> None:
    """A key pair and a product by ring-LWE, with one damage on one side; a wrong share is no failure."""
    ends: list[Channel] = list(memory_pair(SESSION_TIMEOUT_S))
    ends[0] = DamagedChannel(ends[0], dice.randrange(0, 4), dice)
    ends[1] = DamagedChannel(ends[1], dice.randrange(0, 3), dice)
    layer, product = _small_product()
    server, client = (Party(role, ends[role], cast(Suite, None), Prg()) for role in (0, 1))
    secret = SecretKey(client.prg)
    client.channel.send(secret.public())
    public = PublicKey(server.channel.receive(PUBLIC_KEY_BYTES))
    product.ask(client, secret, client.prg.ring(layer.taken[0].size, 12).reshape(1, *layer.taken[0].shape))
    product.answer(server, public, FactorCache().factors(layer, product.packing))
    product.finish(client, secret)


def requests(dice: random.Random) -> None:
    """A server reads a damaged request."""
    request = Request(dice.choice(list(RequestKind)), dice.randrange(1, 2000)).to_bytes()
    with ScriptedPeer(_framed([mutate(request, dice)])) as channel:
        Request.receive(channel, 64)


@cache
def _small_product() -> tuple[Weighted, RlweProduct]:
    layer = small_graph().layers[1]
    product = RlweProduct.of(layer, 12, 1)
    assert product is not None
    return layer, product


@cache
def small_graph() -> Graph:
    """A convolution and a linear layer on a picture of 2x2."""
    net = Sketch("tiny", (1, 2, 2), 3, read_bits("W2A3"))
    x = net.relu("relu1", net.conv("conv1", "input", 2))
    x = net.relu("relu2", net.conv("conv2", x, 2))
    return with_random_weights(net.finish(net.linear("fc", x, 2)))


@dataclass
class FuzzTally:
    """How the cases of one victim ended."""

    victim: str
    cases: int = 0
    accepted: int = 0  # the damage was harmless or hit nothing
    refused: Counter[str] = field(default_factory=Counter)
    slowest_s: float = 0.0

    def row(self) -> dict[str, object]:
        return {
            "victim": self.victim,
            "cases": self.cases,
            "accepted": self.accepted,
            "refused": sum(self.refused.values()),
            "kinds": len(self.refused),
            "slowest_s": round(self.slowest_s, 3),
        }


def fuzz(victim: str, cases: int, seed: int = 0) -> FuzzTally:
    """Run cases; anything but a ThinwireError, or a case that hangs, is raised with its number."""
    tally = FuzzTally(victim)
    for number in range(cases):
        start = time.monotonic()
        try:
            VICTIMS[victim](random.Random(f"{seed}/{victim}/{number}"))
            tally.accepted += 1
        except ThinwireError as error:
            tally.refused[type(error).__name__ + str(error)[:24]] += 1
        except Exception as error:
            raise AssertionError(f"case {number} of {victim!r}, seed {seed}: {error!r}") from error
        took = time.monotonic() - start
        assert took < LIMIT_S, f"case {number} of {victim!r}, seed {seed} took {took:.1f} s"
        tally.cases, tally.slowest_s = number + 1, max(tally.slowest_s, took)
    return tally


def frames(dice: random.Random) -> None:
    """A channel reads a damaged stream of frames, which then ends."""
    payloads = [dice.randbytes(dice.randrange(1, 200)) for _ in range(dice.randrange(1, 5))]
    stream = b"".join(pack_header(memoryview(each), place) + each for place, each in enumerate(payloads))
    with ScriptedPeer(mutate(stream, dice)) as channel:
        for payload in payloads:
            channel.receive(len(payload))


def server(dice: random.Random) -> None:
    """A server meets a damaged client: the damage is within frames that are whole."""
    hello = Hello(1, 0, bytes(32), ANY).to_bytes()
    with ScriptedPeer(_framed([mutate(hello, dice), dice.randbytes(32)])) as channel:
        meet_client(channel, b"description").confirm(channel, b"fingerprint")


def client(dice: random.Random) -> None:
    """A client meets a damaged server."""
    text = b"description"
    hello = Hello(0, len(text), bytes(32), describe_digest(text)).to_bytes()
    damaged = [mutate(part, dice) if dice.random() < 0.7 else part for part in (hello, text, bytes(32))]
    with ScriptedPeer(_framed(damaged)) as channel:
        meet_server(channel).confirm(channel, b"fingerprint")


class ScriptedPeer:
    """A channel whose peer says these bytes and hangs up."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def __enter__(self) -> SocketChannel:
        ours, self._theirs = socket.socketpair()
        self._theirs.sendall(self._data)
        self._theirs.shutdown(socket.SHUT_WR)
        self._channel = SocketChannel(ours, TIMEOUT_S)
        return self._channel

    def __exit__(self, *_: object) -> None:
        self._theirs.close()
        self._channel.close()


def _framed(payloads: list[bytes]) -> bytes:
    whole = [payload for payload in payloads if payload]
    return b"".join(pack_header(memoryview(each), place) + each for place, each in enumerate(whole))


def model_file(dice: random.Random) -> None:
    """A reader of a damaged .twq file; half of them with a checksum that fits the damage."""
    raw = mutate(_small_model(), dice)
    if dice.random() < 0.5:
        raw = raw[:-CHECKSUM_BYTES] + hashlib.sha256(raw[:-CHECKSUM_BYTES]).digest()
    from_bytes(raw)


def model_facts(dice: random.Random) -> None:
    """A reader of a graph's public part, one value of it replaced by another one."""
    facts = to_facts(_small_graph())
    node = dice.choice(facts["nodes"])
    name = dice.choice(sorted(node))
    node[name] = dice.choice((node[name], None, -1, 0, 1, 63, 1 << 40, "x", [], [1 << 30] * 3, {}, True, 0.5))
    from_facts(facts)


@cache
def _small_graph() -> Graph:
    return with_random_weights(build("digits", read_bits("W4A6")))


@cache
def _small_model() -> bytes:
    return to_bytes(QuantizedModel(_small_graph()))


VICTIMS: Mapping[str, Victim] = MappingProxyType(
    {
        "frames": frames,
        "server": server,
        "client": client,
        "model_file": model_file,
        "model_facts": model_facts,
        "rlwe": rlwe,
        "requests": requests,
        "session": session,
    }
)


def threads_left() -> Iterator[str]:
    """Names of link threads that still run: there must be none after a fuzz."""
    for thread in threading.enumerate():
        if thread.name == "thinwire-private-link":
            yield thread.name


def fuzzing(options: BenchOptions, say: Say) -> Iterator[Row]:
    """One row per victim of the fuzzer."""
    for victim, share in SHARES.items():
        cases = round(FUZZ_CASES * share)
        say(f"{victim}, {cases} cases")
        settings = {"victim": victim, "cases": cases, "seed": 0}
        yield options.once("fuzz", settings, lambda *each: fuzz(*each).row(), victim, cases)
