"""The handshake: agreement, and every way in which it is refused, seen from both sides."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest

from thinwire.errors import LinkError
from thinwire_private.link.channel import Channel, memory_pair
from thinwire_private.link.handshake import (
    ANY,
    HELLO_BYTES,
    Hello,
    Terms,
    describe_digest,
    meet_client,
    meet_server,
)

MODEL = b'{"layers": 3}'
DemoResult = bytes | str
Side = Callable[[Channel], bytes]


def serve(description: bytes = MODEL, fingerprint: bytes = b"f") -> Side:
    return lambda channel: meet_client(channel, description).confirm(channel, fingerprint)


def infer(expected: bytes = ANY, fingerprint: bytes = b"f") -> Side:
    return lambda channel: meet_server(channel, expected).confirm(channel, fingerprint)


def meet(server: Side, client: Side) -> tuple[DemoResult, DemoResult]:
    """What each side got: the session id, or the sentence it was refused with."""
    outcome: dict[str, DemoResult] = {}

    def party(name: str, side: Side, channel: Channel) -> None:
        try:
            outcome[name] = side(channel)
        except LinkError as error:
            channel.abort(str(error))
            outcome[name] = str(error)

    ends = memory_pair(timeout_s=120)
    threads = [
        threading.Thread(target=party, args=(name, side, end))
        for name, side, end in zip("sc", (server, client), ends, strict=True)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    return outcome["s"], outcome["c"]


def test_both_get_the_same_session_id_and_another_one_each_time() -> None:
    first, second = meet(serve(), infer()), meet(serve(), infer(describe_digest(MODEL)))
    assert first[0] == first[1]
    assert second[0] == second[1]
    assert isinstance(first[0], bytes)
    assert len(first[0]) == 32
    assert first[0] != second[0]


def test_another_model_is_refused_on_both_sides() -> None:
    server, client = meet(serve(), infer(describe_digest(b"another")))
    assert isinstance(server, str)
    assert "the client expects model" in server
    assert f"the peer stopped: {server}" == client


def test_other_parameters_are_refused_on_both_sides() -> None:
    for outcome in meet(serve(fingerprint=b"a"), infer(fingerprint=b"b")):
        assert "different message sizes" in str(outcome)


def test_another_version_is_refused_on_both_sides() -> None:
    def newer(channel: Channel) -> bytes:
        channel.send(Hello(1, 0, bytes(32), ANY, version=4).to_bytes())
        channel.receive(HELLO_BYTES)
        return b""

    server, client = meet(serve(), newer)
    assert "version 4 of the client meets version 3 of the server" in str(server)
    assert str(server) in str(client)


def test_two_clients_do_not_meet() -> None:
    for outcome in meet(infer(), infer()):
        assert "both ends are a client" in str(outcome)


def test_a_stranger_is_refused() -> None:
    def stranger(channel: Channel) -> bytes:
        channel.send(b"GET / HTTP/1.1".ljust(HELLO_BYTES))
        channel.receive(HELLO_BYTES)
        return b""

    server, _ = meet(serve(), stranger)
    assert "not a thinwire private server or client" in str(server)


@pytest.mark.parametrize("num_bytes", [0, 1 << 31])
def test_a_description_of_absurd_size_is_refused(num_bytes: int) -> None:
    def boaster(channel: Channel) -> bytes:
        channel.receive(HELLO_BYTES)
        channel.send(Hello(0, num_bytes, bytes(32), bytes(32)).to_bytes())
        channel.receive(1)
        return b""

    _, client = meet(boaster, infer())
    assert f"a description of {num_bytes} bytes" in str(client)


def test_a_description_that_was_changed_is_refused() -> None:
    def liar(channel: Channel) -> bytes:
        channel.receive(HELLO_BYTES)
        channel.send(Hello(0, 3, bytes(32), describe_digest(b"abc")).to_bytes())
        channel.send(b"abd")
        channel.receive(1)
        return b""

    _, client = meet(liar, infer())
    assert "does not fit its digest" in str(client)


def test_the_session_id_depends_on_everything_said() -> None:
    terms = [Terms(a, b, c) for a, b, c in ((b"1", b"2", b"3"), (b"0", b"2", b"3"), (b"1", b"2", b"4"))]
    assert len({term.session_id for term in terms}) == 3
