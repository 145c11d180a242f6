"""Findings of a review, each with the test that was red."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import thinwire_private as private
from thinwire.errors import LinkError
from thinwire_private.compiler import compile_graph
from thinwire_private.errors import ModelError
from thinwire_private.link import tls
from thinwire_private.link.tls import connect, write_certificates
from thinwire_private.net import oracle
from thinwire_private.net.graph import Graph
from thinwire_private.net.nodes import Input, IntArray, Output, activation
from thinwire_private.protocols.triples import Stock
from thinwire_private.server import MAX_WAITING
from thinwire_private.sessions import ServerSession, query_bytes
from thinwire_private.variant import VARIANTS


@pytest.fixture
def events() -> list[str]:
    return []


@pytest.fixture
def server(small: Graph, events: list[str]) -> Iterator[private.Server]:
    with private.Server(small, timeout_s=60.0, tell=events.append) as made:
        yield made


def test_a_key_over_a_readable_file_is_not_readable(tmp_path: Path) -> None:
    old = tmp_path / "server.key"
    old.write_text("old")
    old.chmod(0o644)
    written = write_certificates(tmp_path, ["127.0.0.1"])
    assert written["server.key"].stat().st_mode & 0o777 == 0o600


def test_a_key_is_not_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_text("mine")
    (tmp_path / "server.key").symlink_to(elsewhere)
    write_certificates(tmp_path, ["127.0.0.1"])
    assert elsewhere.read_text() == "mine"


@pytest.mark.parametrize("bad", [np.full((1, 4, 4), 77), np.zeros((1, 2, 7), int), np.zeros((1, 4, 4))])
def test_nothing_of_a_wrong_input_reaches_the_server(
    server: private.Server, events: list[str], bad: np.ndarray[Any, Any]
) -> None:
    with pytest.raises(ModelError), private.Client(server.address) as client:
        client.predict(bad)
    server.__exit__(None, None, None)
    assert any("the client has stopped" in event for event in events)
    assert not any(word in event for event in events for word in ("range", "shape", "float", "pictures"))


def test_a_name_that_resolves_anew_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name said loopback when it was checked; the connection then went elsewhere."""

    class Elsewhere(socket.socket):
        def getpeername(self) -> Any:
            return ("203.0.113.9", 7000)

    made = Elsewhere()
    monkeypatch.setattr(tls, "is_loopback", lambda host: host != "203.0.113.9")
    monkeypatch.setattr(socket, "create_connection", lambda *_, **__: made)
    with pytest.raises(LinkError, match="another machine"):
        connect(("rebinding.example", 7000))
    assert made.fileno() == -1


def test_a_server_that_answered_is_not_called_silent(server: private.Server) -> None:
    with pytest.raises(LinkError, match="the client expects model") as caught:
        private.Client(server.address, expected="01" * 32).__enter__()
    assert "nothing at all" not in str(caught.value)


def test_a_shape_that_is_too_large_is_called_so() -> None:
    huge = activation((1 << 10, 1 << 10, 1 << 10), 8)
    with pytest.raises(ModelError, match="at most 268,435,456; use smaller pictures"):
        Graph("huge", (Input("input", (), (), huge), Output("output", ("input",), (huge,), huge)))


def test_a_stock_that_is_used_up_says_so() -> None:
    bits = np.zeros(4, np.uint8)
    stock = Stock((bits,) * 3, (bits,) * 5)
    stock.take(4, 4)
    for single, double in ((1, 0), (0, 1)):
        with pytest.raises(AssertionError, match="used up"):
            stock.take(single, double)


def test_silent_connections_lock_nobody_out(small: Graph, pictures: IntArray) -> None:
    """16 silent peers used to take all places, and every one of 300 a thread."""
    with private.Server(small, timeout_s=60.0) as server, ExitStack() as stack:
        for _ in range(3 * MAX_WAITING):
            stack.enter_context(socket.create_connection(server.address))
        with private.Client(server.address) as client:
            client.predict(pictures[0])
        assert server.status()["waiting"] <= MAX_WAITING
        assert threading.active_count() < 3 * MAX_WAITING
        assert server.status()["refused_total"] >= 2 * MAX_WAITING


def test_a_peer_has_seconds_for_its_hello_not_minutes(
    small: Graph, events: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("thinwire_private.server.HELLO_S", 0.2)
    with (
        private.Server(small, timeout_s=60.0, tell=events.append) as server,
        socket.create_connection(server.address) as silent,
    ):
        silent.settimeout(30.0)
        assert silent.recv(1000) != b""  # it is told why
        assert silent.recv(1000) == b""
    assert any("has sent nothing for 0.2 s" in event for event in events)


def test_clients_of_one_address_are_limited(small: Graph) -> None:
    with (
        private.Server(small, limits=private.Limits(max_per_peer=1), timeout_s=60.0) as server,
        private.Client(server.address),
        pytest.raises(LinkError, match="1 clients of your address already"),
    ):
        private.Client(server.address).__enter__()


def test_a_batch_above_the_servers_limit_is_refused(small: Graph, pictures: IntArray) -> None:
    with private.Server(small, limits=private.Limits(max_batch=2), timeout_s=60.0) as server:
        with private.Client(server.address) as client:
            client.predict(pictures[:2])
        with (
            pytest.raises(LinkError, match="3 pictures at once, this server takes up to 2"),
            private.Client(server.address) as client,
        ):
            client.predict(pictures[:3])


def test_memory_of_prepared_queries_is_limited_and_given_back(small: Graph, pictures: IntArray) -> None:
    limits = private.Limits(max_memory=2 * query_bytes(compile_graph(small, VARIANTS["ours"])))
    with private.Server(small, limits=limits, timeout_s=60.0) as server:
        with private.Client(server.address) as client:
            client.prepare(queries=2)
            for _ in range(2):
                client.predict(pictures[0])
            client.prepare(queries=1)
        with (
            pytest.raises(LinkError, match="MB are in use: ask for fewer pictures, or try again later"),
            private.Client(server.address) as client,
        ):
            client.prepare(queries=3)
        for _ in range(500):
            if server.status()["memory_reserved_bytes"] == 0:
                break
            time.sleep(0.02)
        assert server.status()["memory_reserved_bytes"] == 0


def test_a_stop_lets_a_running_query_finish(
    small: Graph, pictures: IntArray, monkeypatch: pytest.MonkeyPatch
) -> None:
    entered, query = threading.Event(), ServerSession.query

    def slow(self: ServerSession, batch: int) -> None:
        entered.set()
        time.sleep(0.5)
        query(self, batch)

    monkeypatch.setattr(ServerSession, "query", slow)
    server = private.Server(small, timeout_s=60.0).__enter__()
    with ThreadPoolExecutor(1) as pool:
        client = private.Client(server.address).__enter__()
        asked = pool.submit(client.predict, pictures[0])
        entered.wait(60.0)
        server.stop(60.0)
        np.testing.assert_array_equal(asked.result(), oracle.run(small, pictures[:1]))
    with pytest.raises(LinkError, match="shutting down"):
        client.predict(pictures[0])
    with suppress(LinkError):
        client.__exit__(None, None, None)
