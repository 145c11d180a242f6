"""Server and Client over loopback: equal to the oracle, several clients, and everything that can go wrong."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thinwire_private as private
from thinwire.errors import LinkError, ThinwireError
from thinwire_private.costs import total
from thinwire_private.errors import MissingError, ModelError
from thinwire_private.link.handshake import ANY, HELLO_BYTES, Hello, Request
from thinwire_private.link.stream import SocketChannel
from thinwire_private.link.tls import connect, write_certificates
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import IntArray
from thinwire_private.net.twq import QuantizedModel, write_twq
from thinwire_private.program import QueryProgress
from thinwire_private.sessions import digest
from thinwire_private.variant import VARIANTS

LONG_S = 120.0  # far above what a busy machine needs


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def server(small: Graph, events: list[str]) -> Iterator[private.Server]:
    with private.Server(small, timeout_s=LONG_S, tell=events.append) as made:
        yield made


@pytest.fixture
def channels(monkeypatch: pytest.MonkeyPatch) -> list[SocketChannel]:
    """Those of all clients, the oldest first."""
    opened: list[SocketChannel] = []

    def noting(*arguments: Any) -> SocketChannel:
        opened.append(connect(*arguments))
        return opened[-1]

    monkeypatch.setattr("thinwire_private.client.connect", noting)
    return opened


def told(events: list[str], part: str) -> str:
    """The event with this text; it may take a moment to come."""
    for _ in range(6000):
        found = [event for event in list(events) if part in event]
        if found:
            return found[0]
        time.sleep(0.02)
    raise AssertionError(f"{part!r} is not among {events}")


def test_predictions_equal_the_oracle_and_bytes_the_prediction(
    server: private.Server, small: Graph, pictures: IntArray
) -> None:
    with private.Client(server.address) as client:
        for x in (pictures[0], pictures[1:3], pictures[0]):
            np.testing.assert_array_equal(client.predict(x), oracle.run(small, np.atleast_3d(x)))
        whole = total(client.entries)
        assert whole.measured_bytes == whole.predicted_bytes > 0
        assert {entry.phase for entry in client.entries} >= {"setup", "online"}
        assert client.graph.layers[0].weight is None
        assert client.handshake_bytes > 0


def test_offline_work_can_be_done_ahead_and_nothing_of_it_remains_online(
    server: private.Server, small: Graph, pictures: IntArray
) -> None:
    with private.Client(server.address) as client:
        client.prepare(queries=2)
        before = total(client.entries, "offline").measured_bytes
        for x in pictures[:2]:
            np.testing.assert_array_equal(client.predict(x), oracle.run(small, x[None]))
        assert total(client.entries, "offline").measured_bytes == before


def test_the_same_picture_twice_sends_other_bytes(
    server: private.Server,
    pictures: IntArray,
    channels: list[SocketChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Never a pad twice: what the client uploads for one picture differs from query to query."""
    sent: list[bytes] = []
    with private.Client(server.address) as client:
        monkeypatch.setattr(channels[0], "send", _noting(channels[0].send, sent))
        counts = []
        for _ in range(2):
            client.predict(pictures[0])
            counts.append(len(sent))
    first, second = sent[: counts[0]], sent[counts[0] :][: counts[0]]
    long = [(a, b) for a, b in zip(first, second, strict=True) if len(a) > 16]
    assert long
    assert all(a != b for a, b in long)


def _noting(send, sent):  # type: ignore[no-untyped-def]
    def noting(data: bytes) -> None:
        sent.append(bytes(memoryview(data)))
        send(data)

    return noting


def test_several_clients_at_once(server: private.Server, small: Graph, pictures: IntArray) -> None:
    right = []

    def visit(x: IntArray) -> None:
        with private.Client(server.address) as client:
            right.append(np.array_equal(client.predict(x), oracle.run(small, x[None])))

    threads = [threading.Thread(target=visit, args=(x,)) for x in pictures]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert right == [True] * 3


def test_tls_and_mutual_certificates(small: Graph, pictures: IntArray, tmp_path: Path) -> None:
    files = write_certificates(tmp_path, ["127.0.0.1"])
    shown: dict[str, Any] = {
        "certificate": files["server.pem"],
        "key": files["server.key"],
        "client_ca": files["ca.pem"],
    }
    with private.Server(small, timeout_s=LONG_S, **shown) as server:
        own: dict[str, Any] = {
            "certificate": files["client.pem"],
            "key": files["client.key"],
            "ca": files["ca.pem"],
        }
        with private.Client(server.address, timeout_s=LONG_S, **own) as client:
            np.testing.assert_array_equal(client.predict(pictures[0]), oracle.run(small, pictures[:1]))
            assert client.tcp_bytes is None or client.tcp_bytes > total(client.entries).measured_bytes
        with pytest.raises(LinkError, match="TLS"), private.Client(server.address, ca=files["ca.pem"]):
            pass


def test_a_client_without_tls_is_told_what_to_give(small: Graph, tmp_path: Path) -> None:
    files = write_certificates(tmp_path, ["127.0.0.1"])
    server = private.Server(small, certificate=files["server.pem"], key=files["server.key"])
    with server, pytest.raises(LinkError, match="give --ca"), private.Client(server.address):
        pass


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda x: x[:, :2], "the network takes pictures of 1x4x4"),
        (lambda x: x + 100, "leaves its range: give integers from 0 to 15"),
        (lambda x: x - 1, "leaves its range"),
        (lambda x: x / 2, "give integers from 0 to 15"),
    ],
)
def test_a_wrong_input_is_refused_and_the_session_goes_on(
    server: private.Server, small: Graph, change, sentence: str
) -> None:  # type: ignore[no-untyped-def]
    x = np.zeros((1, 4, 4), np.int64)
    with private.Client(server.address) as client:
        with pytest.raises(ModelError, match=sentence):
            client.predict(change(x))
        np.testing.assert_array_equal(client.predict(x), oracle.run(small, x[None]))


def test_another_model_is_refused_on_both_sides(
    server: private.Server, events: list[str], small: Graph
) -> None:
    with pytest.raises(LinkError, match="the client expects model 0101"):
        private.Client(server.address, expected="01" * 32).__enter__()
    told(events, "the client expects model 0101")
    with private.Client(server.address, expected=digest(small, VARIANTS["ours"]).hex()):
        pass
    with pytest.raises(LinkError, match="64 hexadecimal digits"):
        private.Client(server.address, expected="m.twq")


def test_other_parameters_are_refused_on_both_sides(
    server: private.Server, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinwire_private.client.fingerprint", lambda graph, variant: b"another")
    with pytest.raises(LinkError, match="different message sizes"):
        private.Client(server.address).__enter__()
    told(events, "different message sizes")


def test_another_version_is_refused_on_both_sides(server: private.Server, events: list[str]) -> None:
    with connect(server.address, timeout_s=LONG_S) as channel:
        channel.send(Hello(1, 0, bytes(32), ANY, version=7).to_bytes())
        with pytest.raises(LinkError, match="version 7 of the client meets version 3 of the server"):
            channel.receive(HELLO_BYTES)
    told(events, "version 7 of the client")


def test_an_unknown_request_is_refused_on_both_sides(
    server: private.Server, events: list[str], monkeypatch: pytest.MonkeyPatch, pictures: IntArray
) -> None:
    monkeypatch.setattr(Request, "to_bytes", lambda self: b"\x09" + bytes(7))
    with pytest.raises(LinkError, match="asks for act 9"), private.Client(server.address) as client:
        client.predict(pictures[0])
    told(events, "asks for act 9")


def test_a_client_that_stops_talking_is_dropped(small: Graph, events: list[str]) -> None:
    with private.Server(small, timeout_s=0.3, tell=events.append) as server:
        with socket.create_connection(server.address):
            told(events, "has sent nothing for 0.3 s")
        server._timeout_s = LONG_S
        with private.Client(server.address):
            pass  # others are still served


def test_a_server_that_stops_talking_is_left() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as silent,
        pytest.raises(LinkError, match="has sent nothing for 0"),
    ):
        private.Client(silent.getsockname(), timeout_s=0.3).__enter__()


def test_a_killed_server_ends_the_client(
    small: Graph, pictures: IntArray, channels: list[SocketChannel], tmp_path: Path
) -> None:
    write_twq(tmp_path / "m.twq", QuantizedModel(small))
    serve = ["private", "serve", "--model", str(tmp_path / "m.twq"), "--listen", "127.0.0.1:0"]
    process = subprocess.Popen(
        [sys.executable, "-c", "from thinwire.cli import main; main()", *serve],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        address = process.stdout.readline().split(" on ")[1].split(",")[0]
        client = private.Client(address).__enter__()
        client.predict(pictures[0])
        process.kill()
        with pytest.raises(LinkError, match="closed the connection"):  # and not after a time-out
            client.predict(pictures[0])
        channels[0].close()
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_a_client_that_dies_is_told_and_others_are_served(
    server: private.Server,
    events: list[str],
    small: Graph,
    pictures: IntArray,
    channels: list[SocketChannel],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sockets: list[socket.socket] = []
    connect = socket.create_connection

    def noting(*arguments: Any, **options: Any) -> socket.socket:
        sockets.append(connect(*arguments, **options))
        return sockets[-1]

    monkeypatch.setattr(socket, "create_connection", noting)
    client = private.Client(server.address).__enter__()
    sockets[0].shutdown(socket.SHUT_RDWR)
    told(events, "has closed the connection")
    with pytest.raises(LinkError):
        client.predict(pictures[0])
    channels[0].close()
    with private.Client(server.address) as other:
        np.testing.assert_array_equal(other.predict(pictures[0]), oracle.run(small, pictures[:1]))


def test_an_internal_error_tells_nothing_but_its_kind(
    server: private.Server, events: list[str], monkeypatch: pytest.MonkeyPatch, pictures: IntArray
) -> None:
    def broken(self: object, batch: int) -> None:
        raise IndexError("weight 1234567890 is -7")

    monkeypatch.setattr("thinwire_private.server.ServerSession.query", broken)
    with (
        pytest.raises(LinkError, match="the peer stopped: an internal error of the server"),
        private.Client(server.address) as client,
    ):
        client.predict(pictures[0])
    assert "1234567890" not in told(events, "IndexError")


def test_too_many_clients_are_turned_away(small: Graph) -> None:
    with (
        private.Server(small, limits=private.Limits(max_clients=1), timeout_s=LONG_S) as server,
        private.Client(server.address),
        pytest.raises(LinkError, match="serves 1 clients already"),
    ):
        private.Client(server.address).__enter__()


def test_a_server_that_closes_tells_its_clients(
    small: Graph, pictures: IntArray, channels: list[SocketChannel]
) -> None:
    with private.Server(small, timeout_s=LONG_S) as server:
        client = private.Client(server.address).__enter__()
    with pytest.raises(LinkError, match="shutting down"):
        client.predict(pictures[0])
    channels[0].close()


def test_a_network_without_weights_cannot_be_served(small: Graph) -> None:
    with pytest.raises(ModelError, match="has no weights"):
        private.Server(small.public())


@pytest.mark.parametrize("need", ["native", "ristretto255"])
def test_what_is_missing_is_told_before_anything_starts(
    small: Graph, monkeypatch: pytest.MonkeyPatch, need: str
) -> None:
    def missing() -> None:
        raise MissingError("private inference needs AES")

    monkeypatch.setattr(f"thinwire_private.ot.base.{need}", missing)
    with pytest.raises(MissingError, match="needs AES"):
        private.Server(small)
    with pytest.raises(MissingError, match="needs AES"):
        private.Client("127.0.0.1:1")


def test_the_server_wants_a_certificate_beyond_this_machine(small: Graph) -> None:
    with pytest.raises(LinkError, match="without TLS others"), private.Server(small, ("0.0.0.0", 0)):
        pass


def test_a_batch_above_the_limit_is_refused_before_it_is_sent(server: private.Server) -> None:
    with pytest.raises(ThinwireError, match="1 to 1024 pictures"), private.Client(server.address) as client:
        client.predict(np.zeros((1025, 1, 4, 4), np.int64))


def test_every_variant_gives_the_same_answer(small: Graph, pictures: IntArray) -> None:
    for name in ("B0", "S1", "S3", "S6-ss8"):
        variant = replace(VARIANTS[name], tight_acc=False)
        with (
            private.Server(small, variant=variant, timeout_s=LONG_S) as server,
            private.Client(server.address, timeout_s=LONG_S) as client,
        ):
            client.predict(pictures[0])
            whole = total(client.entries)
            assert whole.measured_bytes == whole.predicted_bytes, name


def test_a_pool_prepares_queries_in_idle_time(
    server: private.Server, small: Graph, pictures: IntArray
) -> None:
    with private.Client(server.address, timeout_s=LONG_S, pool=2) as client:
        for x in pictures:
            for _ in range(6000):
                if client.num_prepared == 2:
                    break
                time.sleep(0.01)
            assert client.num_prepared == 2
            np.testing.assert_array_equal(client.predict(x), oracle.run(small, x[None]))


def test_progress_is_told_and_ends_at_all_of_it(server: private.Server, pictures: IntArray) -> None:
    seen: list[QueryProgress] = []
    with private.Client(server.address, timeout_s=LONG_S, watch=seen.append) as client:
        client.predict(pictures[0])
    for phase in ("offline", "online"):
        done = [one.done for one in seen if one.phase == phase]
        assert done == sorted(done)
        assert done[-1] == 1.0
    assert str(replace(seen[-1], done=0.5, seconds_left=75.2, layer="fc")) == "online 50%, fc, 1:15 left"
