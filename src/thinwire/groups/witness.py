"""A witness: plain connections between all ranks, over which they tell each other why an exchange failed.

They also tell what they call that all ranks must call (roll_call.py): who trains on hears of it there.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import selectors
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch.distributed as dist

from thinwire.groups.base import LEFT, UNREACHED, FailureReport


@dataclass(frozen=True)
class Call:
    """One of them: what a rank called, as its user wrote it, and how many exchanges it had begun by then."""

    what: str
    begun: int


class RollCall:
    """The calls of all ranks, in order. A rank that begins the next exchange has let the call pass by.

    >>> roll = RollCall(rank=1, ranks=range(2))
    >>> roll.heard(0, Call("state_dict(gather=True)", 0)); roll.passed_by  # rank 1 may still call it
    >>> _ = roll.begin(); roll.passed_by
    Call(what='state_dict(gather=True)', begun=0)
    >>> roll.absent()
    ('state_dict(gather=True)', [1])
    """

    def __init__(self, rank: int, ranks: Iterable[int]) -> None:
        self._rank = rank
        self._calls: dict[int, list[Call]] = {peer: [] for peer in ranks}
        self._begun = 0
        self._stuck: Call | None = None

    def make(self, what: str) -> Call:
        """This rank calls it; the others are to be told."""
        call = Call(what, self._begun)
        self._calls[self._rank].append(call)
        return call

    def heard(self, rank: int, call: Call) -> None:
        """A peer has called it."""
        self._calls[rank].append(call)

    def begin(self) -> bool:
        """This rank begins an exchange; whether all calls so far were made by all ranks, and alike."""
        self._begun += 1
        return self._stuck is None and not any(self._calls.values())

    def wait_elsewhere(self) -> None:
        """This rank waits for the others in another collective, and will not come to their call."""
        self._stuck = next(iter(self.open_calls.values()), None)

    @property
    def open_calls(self) -> dict[int, Call]:
        """By peer: the first call that this rank has not made, or not yet."""
        made = len(self._calls[self._rank])
        return {rank: calls[made] for rank, calls in self._calls.items() if len(calls) > made}

    @property
    def passed_by(self) -> Call | None:
        """A call of a peer that this rank will not make any more: it is in a later exchange."""
        late = (call for call in self.open_calls.values() if call.begun < self._begun)
        return self._stuck or next(late, None)

    @property
    def awaited(self) -> set[int]:
        """Who has made fewer calls than this rank."""
        made = len(self._calls[self._rank])
        return {rank for rank, calls in self._calls.items() if len(calls) < made}

    def disagreement(self) -> tuple[dict[int, str], int] | None:
        """What each rank called where they called different things, and how many calls were alike before.

        Calls that all ranks have made, and made alike, are over: nobody asks for them again.
        """
        settled = 0
        for number in range(max(map(len, self._calls.values()))):
            told = {rank: calls[number].what for rank, calls in self._calls.items() if len(calls) > number}
            if len(set(told.values())) > 1:
                return told, number
            settled += len(told) == len(self._calls)
        for calls in self._calls.values():
            del calls[:settled]
        return None

    def absent(self) -> tuple[str, list[int]] | None:
        """The last call that somebody made and somebody did not, and who did not."""
        most = max(map(len, self._calls.values()))
        absent = [rank for rank, calls in self._calls.items() if len(calls) < most]
        if not absent:
            return None
        what = next(calls[-1].what for calls in self._calls.values() if len(calls) == most)
        return what, absent


_COLLECTIVES = os.path.join("torch", "distributed", "distributed_c10d.py")
_DDP = os.path.join("torch", "nn", "parallel", "distributed.py")


class Standstill:
    """Looks at a thread now and then; it stands still if it is found at the same line for `after_s`."""

    def __init__(self, thread: int, after_s: float) -> None:
        self._thread, self._after_s = thread, after_s
        self._place: tuple[int, int] | None = None
        self._since = 0.0

    def waits_for(self, rank: int) -> bool:
        """Whether it has stood still in a collective in which global rank `rank` takes part."""
        frame = sys._current_frames().get(self._thread)
        if frame is None or not _in_collective_with(frame, rank):
            self._place = None
            return False
        place = id(frame), frame.f_lasti
        if place != self._place:
            self._place, self._since = place, time.monotonic()
        return time.monotonic() - self._since >= self._after_s


def _in_collective_with(frame: FrameType, rank: int) -> bool:
    """The innermost frame of Python tells where native code was entered."""
    name = frame.f_code.co_filename
    if name.endswith(_DDP):
        return True
    if not name.endswith(_COLLECTIVES):
        return False
    group = frame.f_locals.get("group")
    return not isinstance(group, dist.ProcessGroup) or rank in dist.get_process_group_ranks(group)


TEXT_MAX = 600
LETTER_MAX = 8192  # bytes of a failure report; json makes at most 6 of a character
GRACE_S = 1.0  # once somebody is found at fault the others have so long to say something too
CONNECT_S = 2.0  # for each address of a peer
GLANCE_S = 1.0  # between two looks at what this rank does while a peer waits for its call
_CALL = "call"  # instead of an operation: a message that is no failure report


class Witness:
    """One TCP connection to every peer, over which nothing travels until a rank calls, fails or leaves.

    It needs no store. The kernel keeps what a peer said before it ended, and tells when its
    process is gone: a peer that ended without a word is at fault, whatever the others did because of it.
    A thread listens, and sleeps while nobody says anything: `heard` is called on it for every call of a peer,
    and every `GLANCE_S` while such a call is not answered.
    """

    def __init__(self, rank: int, size: int, sockets: Mapping[int, socket.socket], patience_s: float) -> None:
        self._rank, self._size = rank, size
        self.patience_s = patience_s  # for what peers have to say
        self.roll = RollCall(rank, (rank, *sockets))
        self.heard: Callable[[], None] = lambda: None
        self._sockets = dict(sockets)
        self._unread: dict[int, bytes] = dict.fromkeys(self._sockets, b"")
        self._found: dict[
            int, FailureReport | None
        ] = {}  # by peer: its first failure report, or that it is gone
        self.news = threading.Condition(threading.RLock())  # guards all of this, and the roll
        self._bell, self._ear = socket.socketpair()  # wakes the thread
        for connection in self._sockets.values():
            connection.setblocking(False)
        self._thread = threading.Thread(target=self._listen, name="thinwire witness", daemon=True)
        self._thread.start()

    @property
    def complete(self) -> bool:
        """Whether all peers were met."""
        return len(self._unread) == self._size - 1

    def trade(self, failure: FailureReport) -> Mapping[int, FailureReport | None]:
        """What every rank has to say: None for one that ended without a word, nothing for a silent one."""
        with self.news:
            self._read_all()
        self.tell(failure)
        deadline = time.monotonic() + self.patience_s
        with self.news:
            while len(self._found) < len(self._sockets) and (left := deadline - time.monotonic()) > 0:
                if _at_fault({**self._found, self._rank: failure}):
                    left = min(left, GRACE_S)
                    deadline = min(deadline, time.monotonic() + left)
                self.news.wait(left)
            unreached = (rank for rank in range(self._size) if rank not in self._unread)
            return {**dict.fromkeys(unreached, UNREACHED), **self._found, self._rank: failure}

    def ended(self) -> Mapping[int, FailureReport | None]:
        """Peers that have said why they ended, or are gone (None); waits for nothing."""
        with self.news:
            self._read_all()
            return dict(self._found)

    def tell(self, failure: FailureReport) -> None:
        """Says it to every peer; none is waited for."""
        self._send([failure.operation, failure.text[:TEXT_MAX], failure.own])

    def call(self, what: str) -> None:
        """This rank calls something that every rank must call; the peers hear of it."""
        with self.news:
            call = self.roll.make(what)
        self._send([_CALL, call.what, call.begun])

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._bell.send(b".")
        if threading.current_thread() is not self._thread:
            self._thread.join()
        for connection in (*self._sockets.values(), self._bell, self._ear):
            connection.close()
        self._sockets.clear()

    def _send(self, letter: list[Any]) -> None:
        line = f"{json.dumps(letter)}\n".encode()
        with self.news:
            for connection in self._sockets.values():
                with contextlib.suppress(OSError):  # that peer is gone
                    connection.send(line)

    def _listen(self) -> None:
        """The thread: until `close` rings."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._ear, selectors.EVENT_READ)
            for peer, connection in self._sockets.items():
                selector.register(connection, selectors.EVENT_READ, peer)
            waits: float | None = None
            while True:
                ready = selector.select(waits)
                if any(key.data is None for key, _ in ready):
                    return
                with self.news:
                    for key, _ in ready:
                        if self._read(key.data):
                            selector.unregister(key.fileobj)
                    waits = GLANCE_S if self.roll.open_calls else None
                    self.news.notify_all()
                if waits:
                    self.heard()

    def _read_all(self) -> None:
        for peer in self._sockets:
            self._read(peer)

    def _read(self, peer: int) -> bool:
        """Takes in what a peer has said; whether it is gone."""
        gone = False
        try:
            while chunk := self._sockets[peer].recv(LETTER_MAX):
                self._unread[peer] += chunk
            gone = True
        except BlockingIOError:
            pass
        except OSError:  # reset: its process is gone
            gone = True
        *lines, self._unread[peer] = self._unread[peer].split(b"\n")
        for line in lines:
            self._take(peer, line)
        if gone:
            self._found.setdefault(peer, None)
        return gone

    def _take(self, peer: int, line: bytes) -> None:
        with contextlib.suppress(ValueError, TypeError):
            first, text, last = json.loads(line)
            if first == _CALL:
                self.roll.heard(peer, Call(str(text), int(last)))
            else:
                self._found.setdefault(peer, FailureReport(str(first), str(text), bool(last)))


class Listener:
    """Where peers knock when a witness is made; who does not know the token of its peer info is refused."""

    def __init__(self, towards: str | None) -> None:
        self._listener = socket.create_server(("", 0), backlog=socket.SOMAXCONN)
        self._token, self._towards = secrets.token_hex(16), towards

    def peer_info(self) -> dict[str, Any]:
        port = self._listener.getsockname()[1]
        return {"addresses": _own_addresses(self._towards), "port": port, "token": self._token}

    def witness(self, rank: int, peer_infos: list[dict[str, Any]], patience_s: float) -> Witness:
        """Knocks at the doors of lower ranks, opens to higher ones; who is not met in time is left out."""
        deadline = time.monotonic() + patience_s
        sockets: dict[int, socket.socket] = {}
        for peer in range(rank):
            connection = _knock(peer_infos[peer], rank)
            if connection is not None:
                sockets[peer] = connection
        while len(sockets) < len(peer_infos) - 1 and (left := deadline - time.monotonic()) > 0:
            self._listener.settimeout(left)
            with contextlib.suppress(OSError, ValueError):
                connection, _ = self._listener.accept()
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                token, _, number = connection.makefile().readline(LETTER_MAX).strip().rpartition(" ")
                if token == self._token and rank < int(number) < len(peer_infos):
                    sockets[int(number)] = connection
                else:
                    connection.close()
        return Witness(rank, len(peer_infos), sockets, patience_s)

    def close(self) -> None:
        self._listener.close()


def _knock(peer_info: dict[str, Any], rank: int) -> socket.socket | None:
    for address in peer_info["addresses"]:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, peer_info["port"]), CONNECT_S)
            connection.sendall(f"{peer_info['token']} {rank}\n".encode())
            return connection
    return None


def _own_addresses(towards: str | None) -> list[str]:
    """Where peers may find this host: the address by which it reaches the store, then others it has."""
    found: list[str] = []
    for target in filter(None, (towards, "192.0.2.1")):  # no packet is sent; the second stands for anywhere
        with contextlib.suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((target, 9))
            found.append(probe.getsockname()[0])
    with contextlib.suppress(OSError):
        found += socket.gethostbyname_ex(socket.gethostname())[2]
    return list(dict.fromkeys(found))


def _at_fault(found: Mapping[int, FailureReport | None]) -> bool:
    """Whether it is known who is to blame: not by a rank that left, if somebody waited in vain."""
    if any(said is None or (said.own and said.operation != LEFT) for said in found.values()):
        return True
    said = [one for one in found.values() if one is not None]
    return any(one.own for one in said) and not any(one.waited for one in said)
