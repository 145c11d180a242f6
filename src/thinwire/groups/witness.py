"""A witness: plain connections between all ranks, over which they tell each other why an exchange failed."""

from __future__ import annotations

import contextlib
import json
import secrets
import selectors
import socket
import time
from collections.abc import Mapping
from typing import Any

from thinwire.groups.base import LEFT, UNREACHED, Confession

TEXT_MAX = 600
LETTER_MAX = 8192  # bytes of a confession; json makes at most 6 of a character
GRACE_S = 1.0  # once somebody is found at fault the others have so long to say something too
CONNECT_S = 2.0  # for each address of a peer


class Witness:
    """One TCP connection to every peer, over which nothing travels until a rank fails or leaves.

    It needs no thread and no store. The kernel keeps what a peer said before it ended, and tells when its
    process is gone: a peer that ended without a word is at fault, whatever the others did because of it.
    """

    def __init__(self, rank: int, size: int, sockets: Mapping[int, socket.socket], patience_s: float) -> None:
        self._rank, self._size = rank, size
        self.patience_s = patience_s  # for what peers have to say
        self._sockets = dict(sockets)
        self._heard: dict[int, bytes] = dict.fromkeys(self._sockets, b"")
        for connection in self._sockets.values():
            connection.setblocking(False)

    def trade(self, confession: Confession) -> Mapping[int, Confession | None]:
        """What every rank has to say: None for one that ended without a word, nothing for a silent one."""
        found: dict[int, Confession | None] = {
            rank: UNREACHED for rank in range(self._size) if rank not in self._sockets
        }
        found[self._rank] = confession
        waiting = [peer for peer in self._sockets if not self._listen(peer, found)]
        self.tell(confession)
        deadline = time.monotonic() + self.patience_s
        with selectors.DefaultSelector() as selector:
            for peer in waiting:
                selector.register(self._sockets[peer], selectors.EVENT_READ, peer)
            while selector.get_map() and (left := deadline - time.monotonic()) > 0:
                if _at_fault(found):
                    left = min(left, GRACE_S)
                    deadline = min(deadline, time.monotonic() + left)
                for key, _ in selector.select(left):
                    if self._listen(key.data, found):
                        selector.unregister(key.fileobj)
        return found

    def ended(self) -> Mapping[int, Confession | None]:
        """Peers that have said something or are gone (None); waits for nothing."""
        found: dict[int, Confession | None] = {}
        for peer in self._sockets:
            self._listen(peer, found)
        return found

    def tell(self, confession: Confession) -> None:
        """Says it to every peer; none is waited for."""
        text = json.dumps([confession.operation, confession.text[:TEXT_MAX], confession.own])
        for connection in self._sockets.values():
            with contextlib.suppress(OSError):  # that peer is gone
                connection.send(f"{text}\n".encode())

    def close(self) -> None:
        for connection in self._sockets.values():
            connection.close()
        self._sockets.clear()

    def _listen(self, peer: int, found: dict[int, Confession | None]) -> bool:
        """Whether all is known about a peer: its first confession, or that there will be none."""
        try:
            while b"\n" not in self._heard[peer] and len(self._heard[peer]) < LETTER_MAX:
                chunk = self._sockets[peer].recv(LETTER_MAX)
                if not chunk:
                    break
                self._heard[peer] += chunk
        except BlockingIOError:
            return False
        except OSError:  # reset: its process is gone
            pass
        found[peer] = _read(self._heard[peer])
        return True


class Door:
    """Where peers knock when a witness is made; who does not know the token of its card is not let in."""

    def __init__(self, towards: str | None) -> None:
        self._listener = socket.create_server(("", 0), backlog=socket.SOMAXCONN)
        self._token, self._towards = secrets.token_hex(16), towards

    def card(self) -> dict[str, Any]:
        port = self._listener.getsockname()[1]
        return {"addresses": _own_addresses(self._towards), "port": port, "token": self._token}

    def witness(self, rank: int, cards: list[dict[str, Any]], patience_s: float) -> Witness:
        """Knocks at the doors of lower ranks, opens to higher ones; who is not met in time is left out."""
        deadline = time.monotonic() + patience_s
        sockets: dict[int, socket.socket] = {}
        for peer in range(rank):
            connection = _knock(cards[peer], rank)
            if connection is not None:
                sockets[peer] = connection
        while len(sockets) < len(cards) - 1 and (left := deadline - time.monotonic()) > 0:
            self._listener.settimeout(left)
            with contextlib.suppress(OSError, ValueError):
                connection, _ = self._listener.accept()
                connection.settimeout(max(0.1, deadline - time.monotonic()))
                token, _, number = connection.makefile().readline(LETTER_MAX).strip().rpartition(" ")
                if token == self._token and rank < int(number) < len(cards):
                    sockets[int(number)] = connection
                else:
                    connection.close()
        return Witness(rank, len(cards), sockets, patience_s)

    def close(self) -> None:
        self._listener.close()


def _knock(card: dict[str, Any], rank: int) -> socket.socket | None:
    for address in card["addresses"]:
        with contextlib.suppress(OSError):
            connection = socket.create_connection((address, card["port"]), CONNECT_S)
            connection.sendall(f"{card['token']} {rank}\n".encode())
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


def _at_fault(found: Mapping[int, Confession | None]) -> bool:
    """Whether it is known who is to blame: not by a rank that left, if somebody waited in vain."""
    if any(said is None or (said.own and said.operation != LEFT) for said in found.values()):
        return True
    said = [one for one in found.values() if one is not None]
    return any(one.own for one in said) and not any(one.waited for one in said)


def _read(heard: bytes) -> Confession | None:
    line, newline, _ = heard.partition(b"\n")
    if not newline:
        return None
    with contextlib.suppress(ValueError, TypeError):
        operation, text, own = json.loads(line)
        return Confession(str(operation), str(text), bool(own))
    return None
