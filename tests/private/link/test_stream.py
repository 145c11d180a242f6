"""A channel over sockets: large messages both ways at once, damage, silence, a peer that is gone."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Iterator

import pytest

from thinwire.errors import LinkError
from thinwire_private.link import stream
from thinwire_private.link.channel import HEADER, MAX_FRAME_BYTES, framed_bytes, pack_header
from thinwire_private.link.stream import SocketChannel

Pair = tuple[SocketChannel, SocketChannel]
LONG_S = 120.0  # far above what a busy machine needs


def tcp_pair() -> tuple[socket.socket, socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        ours = socket.create_connection(listener.getsockname())
        return ours, listener.accept()[0]


@pytest.fixture
def pair() -> Iterator[Pair]:
    ours, theirs = (SocketChannel(end, timeout_s=LONG_S) for end in tcp_pair())
    yield ours, theirs
    theirs.close()
    ours.close()


@pytest.fixture
def raw() -> Iterator[tuple[SocketChannel, socket.socket]]:
    """A channel whose peer writes bytes by hand."""
    ours, theirs = tcp_pair()
    channel = SocketChannel(ours, timeout_s=LONG_S)
    yield channel, theirs
    theirs.close()
    channel.close()


def framed(payload: bytes, sequence: int = 0) -> bytes:
    return pack_header(memoryview(payload), sequence) + payload


def test_both_send_much_at_once_without_a_deadlock(pair: Pair) -> None:
    data = os.urandom(18 << 20)
    received = []

    def party(channel: SocketChannel) -> None:
        channel.send(data)
        received.append(bytes(channel.receive(len(data))) == data)

    threads = [threading.Thread(target=party, args=(end,)) for end in pair]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LONG_S)
    assert received == [True, True]
    assert pair[0].counters.sent_bytes == framed_bytes(len(data)) == len(data) + 2 * 12
    assert pair[0].socket_bytes == pair[1].socket_bytes == pair[0].counters.total_bytes
    assert pair[0].tcp_bytes in (None, pair[0].counters.total_bytes)


def test_a_message_above_one_frame_keeps_its_bytes(pair: Pair) -> None:
    data = os.urandom(2 * MAX_FRAME_BYTES + 5)
    pair[0].send(data)
    assert bytes(pair[1].receive(len(data))) == data
    assert pair[1].counters.received_frames == 3


@pytest.mark.parametrize("place", [0, 5, 9, 12, 15])
def test_a_flipped_bit_is_noticed(raw: tuple[SocketChannel, socket.socket], place: int) -> None:
    damaged = bytearray(framed(b"1234"))
    damaged[place] ^= 1 << 3
    raw[1].sendall(damaged + framed(b"more to come", 1))
    with pytest.raises(LinkError, match="damaged"):
        raw[0].receive(4)


def test_a_huge_frame_is_refused_before_it_is_allocated(raw: tuple[SocketChannel, socket.socket]) -> None:
    raw[1].sendall(HEADER.pack(0x7FFFFFFF, 0, 0))
    with pytest.raises(LinkError, match="a frame of 2147483647 bytes"):
        raw[0].receive(4)


def test_another_size_is_refused_at_once(raw: tuple[SocketChannel, socket.socket]) -> None:
    raw[1].sendall(framed(b"12345"))
    with pytest.raises(LinkError, match="sent 5 bytes where 4 were due"):
        raw[0].receive(4)


def test_silence_is_noticed_also_within_a_message(raw: tuple[SocketChannel, socket.socket]) -> None:
    raw[0].timeout_s = 0.1
    raw[1].sendall(framed(b"1234")[:-1])
    with pytest.raises(LinkError, match=r"nothing for 0\.1 s"):
        raw[0].receive(4)


def test_a_peer_that_goes_away_is_noticed(raw: tuple[SocketChannel, socket.socket]) -> None:
    raw[1].sendall(framed(b"last words"))
    raw[1].close()
    assert bytes(raw[0].receive(10)) == b"last words"
    with pytest.raises(LinkError, match="has closed the connection"):
        raw[0].receive(4)


def test_a_message_cut_short_is_noticed(raw: tuple[SocketChannel, socket.socket]) -> None:
    raw[1].sendall(framed(b"1234")[:-1])
    raw[1].close()
    with pytest.raises(LinkError, match="in the middle of a message"):
        raw[0].receive(4)


def test_the_reason_of_an_abort_is_told_after_what_was_sent_before(pair: Pair) -> None:
    pair[0].send(b"first")
    pair[0].abort("its model is another\none")
    assert bytes(pair[1].receive(5)) == b"first"
    with pytest.raises(LinkError, match="the peer stopped: its model is another one"):
        pair[1].receive(1)
    with pytest.raises(LinkError, match="closed"):
        pair[0].receive(1)


def test_a_peer_that_reads_nothing_stops_the_sender_after_the_time_out(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stream, "MAX_QUEUED_BYTES", 16 << 20)  # more than the kernel takes in
    ours, theirs = tcp_pair()
    channel = SocketChannel(ours, timeout_s=0.3)
    block = bytes(4 << 20)
    for _ in range(5):
        channel.send(block)
    with pytest.raises(LinkError, match="has taken nothing"):
        channel.send(block)
    channel.abort("enough")
    theirs.close()
