"""Extension: the correlation holds for every OT, keys look random, faults do not pass in silence."""

from __future__ import annotations

import hashlib
from itertools import pairwise

import numpy as np
import pytest
from pair import KINDS, Pair

from thinwire_private.errors import MissingError, ModelError, ProtocolError
from thinwire_private.message import ProtocolMessage, traffic
from thinwire_private.ot import base, primitives
from thinwire_private.ot.base import BaseReceiver, BaseSender
from thinwire_private.ot.kind import OtKind
from thinwire_private.ot.primitives import Prg
from thinwire_private.ot.suite import setup_messages

# SHA-256 of what the client sends and receives under the seeds of Pair, so that a change of the wire is seen.
DIGESTS = {
    "kk13+iknp": "369212576ad9d87e2ab25be32444568e8aa083ab693e3466c8e51e0ee542edd9",
    "softspoken:1": "c43f34319c2d89d774092da73b2415dd3ac97a9a33e640bd8134b9d6358f0166",
    "softspoken:2": "faee7eb4affd146db141ee4413c9674b3f20863bf150200c790ba52140f19821",
    "softspoken:4": "73bdf598648c824624f484ddb033c349b9193e813cb8152ea7d7058a37d578fc",
    "softspoken:8": "0bcd0d0e00859fae6137a14fd587607685994d578de06b710f6f49881778d08d",
}


@pytest.fixture(scope="module", params=KINDS)
def pair(request: pytest.FixtureRequest) -> Pair:
    return Pair(request.param)


@pytest.mark.parametrize("count", [1, 127, 128, 16384, 40001])
def test_q_is_v_or_v_xor_delta(pair: Pair, count: int) -> None:
    choices = Prg(bytes(16)).bits(count)
    for sender, receiver in (
        (pair.server.suite.sender, pair.client.suite.receiver),
        (pair.client.suite.sender, pair.server.suite.receiver),
    ):
        message, v = receiver.extend(choices)
        q = sender.extend(message, count)
        expected = v.rows.reshape(count, 16) ^ (choices[:, None] * sender.delta)
        assert np.array_equal(q.rows.reshape(count, 16), expected)
        assert q.first_index == v.first_index


@pytest.mark.parametrize("kind", ["softspoken:1", "softspoken:8"])
def test_ots_half_made_ahead_are_the_same_ots(kind: str) -> None:
    late, ahead = Pair(kind), Pair(kind)
    counts = (1, 129, 20000, 128, 5000)
    for count in counts:
        choices = Prg(bytes(16)).bits(count)
        ahead.client.suite.receiver.prepare(40)  # at times more than is needed, at times less
        ahead.server.suite.sender.prepare(3)
        made = []
        for pair in (late, ahead):
            message, v = pair.client.suite.receiver.extend(choices)
            q = pair.server.suite.sender.extend(message, count)
            made.append((bytes(message), v.rows.tobytes(), q.rows.tobytes()))
        assert made[0] == made[1]


def test_no_more_is_made_ahead_than_there_is_room_for() -> None:
    core = primitives.native().SoftSpokenReceiver(1, np.zeros(256 * 16, np.uint8))
    core.prepare(1 << 50)  # would not end


def test_kk13_opens_the_chosen_entry_only() -> None:
    pair = Pair("kk13+iknp")
    sender, receiver = pair.server.suite.wide_sender, pair.client.suite.wide_receiver
    assert sender is not None
    assert receiver is not None
    choices = Prg(bytes(16)).take(20000) & np.uint8(15)
    message, t = receiver.extend(choices)
    tables, entries = sender.tables(sender.extend(message, choices.size), 4), receiver.entries(t)
    each = np.arange(choices.size)
    assert np.array_equal(tables[each, choices], entries)
    for other in range(1, 16):  # another entry agrees by chance only: once in 256
        assert (tables[each, choices ^ other] == entries).mean() < 0.01


def test_a_million_pads_are_balanced_bits(pair: Pair) -> None:
    count = 1 << 20 if pair.kind.k == 1 else 1 << 16
    message, _ = pair.client.suite.receiver.extend(np.zeros(count, np.uint8))
    zero, one = pair.server.sender_pads(pair.server.suite.sender.extend(message, count))
    for pads in (zero, one, zero ^ one):
        bits = np.unpackbits(pads.view(np.uint8))
        pairs = (bits[:-1] ^ bits[1:]).mean()  # monobit and serial test, five standard deviations
        assert abs(bits.mean() - 0.5) < 2.5 / np.sqrt(bits.size)
        assert abs(pairs - 0.5) < 2.5 / np.sqrt(bits.size)


def test_a_flipped_bit_on_the_way_spoils_the_keys(pair: Pair) -> None:
    count = 256
    message, v = pair.client.suite.receiver.extend(np.ones(count, np.uint8))
    broken = bytearray(message)
    broken[5] ^= 16
    q = pair.server.suite.sender.extend(memoryview(bytes(broken)), count)
    _, one = pair.server.sender_pads(q)
    own = pair.client.receiver_pads(v)
    # OT 44 was hit in one row (k rows): its key is lost unless those bits of Delta are all 0. The others
    # hold.
    delta = np.unpackbits(pair.server.suite.sender.delta, bitorder="little")[: pair.kind.k]
    lost = {44} if delta.any() else set()
    assert set(np.flatnonzero(own != one)) == lost


def test_two_sessions_share_no_pad() -> None:
    found = [Pair("softspoken:4", seed) for seed in (1, 2)]
    rows = []
    for pair in found:
        message, _ = pair.client.suite.receiver.extend(np.zeros(64, np.uint8))
        rows += list(np.concatenate(pair.server.sender_pads(pair.server.suite.sender.extend(message, 64))))
    assert len(set(rows)) == len(rows) == 256
    assert found[0].server.suite.session != found[1].server.suite.session


def test_indices_are_handed_out_once(pair: Pair) -> None:
    sender, receiver = pair.server.suite.sender, pair.client.suite.receiver
    spans = []
    for count in (3, 200, 1):
        message, v = receiver.extend(np.zeros(count, np.uint8))
        assert sender.extend(message, count).first_index == v.first_index
        spans.append((v.first_index, v.first_index + count))
    assert all(before[1] == after[0] for before, after in pairwise(spans))


@pytest.mark.parametrize("kind", KINDS)
def test_the_transcript_is_pinned(kind: str) -> None:
    from thinwire_private.link.channel import Buffer, MemoryChannel

    seen = hashlib.sha256()
    send = MemoryChannel.send

    def record(channel: MemoryChannel, data: Buffer) -> None:
        sent[id(channel)] = sent.get(id(channel), b"") + bytes(memoryview(data).cast("B"))
        send(channel, data)

    sent: dict[int, bytes] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryChannel, "send", record)
        pair = Pair(kind)
    for party in (pair.server, pair.client):
        seen.update(sent[id(party.channel)])
    choices = Prg(bytes(16)).bits(1000)
    message, v = pair.client.suite.receiver.extend(choices)
    seen.update(bytes(message) + pair.client.receiver_pads(v).tobytes())
    if pair.kind.kk13:
        wide = pair.client.suite.wide_receiver
        assert wide is not None
        message, t = wide.extend(choices)
        seen.update(bytes(message) + wide.entries(t).tobytes())
    assert seen.hexdigest() == DIGESTS[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_the_set_up_sends_what_was_predicted(kind: str) -> None:
    counters, predicted = Pair(kind).client.channel.counters, traffic(setup_messages(OtKind.read(kind)))
    assert counters.total_bytes == predicted.total_bytes
    assert counters.flights == predicted.flights


def test_base_ot_refuses_what_is_no_point() -> None:
    receiver = BaseReceiver(b"s", [0, 1], Prg(bytes(16)))
    with pytest.raises(ProtocolError, match="not a point"):
        receiver.keys(b"\xff" * 32)
    with pytest.raises(ProtocolError, match="not a point"):
        BaseSender(b"s", Prg(bytes(16))).keys(b"\xff" * 128)


def test_base_ot_gives_the_chosen_key_only() -> None:
    choices = [0, 1, 1, 0]
    receiver, sender = BaseReceiver(b"s", choices, Prg(bytes(16))), BaseSender(b"s", Prg(b"1" * 16))
    pairs, chosen = sender.keys(receiver.message), receiver.keys(sender.message)
    assert chosen == [pair[choice] for pair, choice in zip(pairs, choices, strict=True)]
    assert len({key for pair in pairs for key in pair}) == 8
    assert BaseReceiver(b"t", choices, Prg(bytes(16))).keys(sender.message) != chosen  # the session counts


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(ModelError, match="softspoken:8"):
        OtKind.read("ideal")


def test_what_is_missing_is_said_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(name: str) -> None:
        raise ImportError(name)

    monkeypatch.setattr(primitives.importlib, "import_module", fail)
    primitives.native.cache_clear()
    with pytest.raises(MissingError, match=r"C\+\+17 compiler"):
        primitives.native()
    monkeypatch.setattr(base.ctypes.util, "find_library", lambda name: "no such library")
    base.ristretto255.cache_clear()
    with pytest.raises(MissingError, match="pip install rbcl"):
        base.ristretto255()
    monkeypatch.undo()
    primitives.native.cache_clear()
    base.ristretto255.cache_clear()
    primitives.native()
    base.check_requirements()


def test_empty_messages_cost_nothing() -> None:
    assert traffic([ProtocolMessage(0, 0)]).total_bytes == 0
