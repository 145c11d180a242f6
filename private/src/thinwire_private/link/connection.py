"""Connections: a listener, a call to it, and TLS on either end, all with time-outs and clear refusals."""

from __future__ import annotations

import contextlib
import socket
import ssl

from thinwire.errors import LinkError
from thinwire_private.link.stream import DEFAULT_TIMEOUT_S, SocketChannel
from thinwire_private.link.tls import Address, require_tls, told

CONNECT_TIMEOUT_S = 10.0


def listen(address: Address, context: ssl.SSLContext | None = None) -> socket.socket:
    """A socket that waits for clients; port 0 takes a free one."""
    require_tls(address, context)
    family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
    try:
        return socket.create_server(address, family=family, backlog=64)
    except OSError as error:
        raise LinkError(
            f"cannot listen on {told(address)} ({error.strerror or error}): "
            "another program has this port, or the address is not ours; choose another port"
        ) from None


def answer(
    connection: socket.socket, context: ssl.SSLContext | None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SocketChannel:
    """The server's end of an accepted connection."""
    try:
        return SocketChannel(_wrapped(connection, context, None, timeout_s), timeout_s)
    except (ssl.SSLError, OSError) as error:
        connection.close()
        raise LinkError(
            f"a client could not be spoken to over TLS ({reason(error)}): "
            "it uses no TLS, or does not accept this certificate, or has none that is asked for"
        ) from None


def call(
    address: Address, context: ssl.SSLContext | None = None, timeout_s: float = DEFAULT_TIMEOUT_S
) -> SocketChannel:
    """The client's end of a new connection."""
    require_tls(address, context)
    try:
        connection = socket.create_connection(address, timeout=min(CONNECT_TIMEOUT_S, timeout_s))
    except OSError as error:
        raise LinkError(
            f"no server answers at {told(address)} ({error.strerror or error}): "
            "is `thinwire private serve` running there, and is the port open?"
        ) from None
    try:
        return SocketChannel(_wrapped(connection, context, address[0], timeout_s), timeout_s)
    except ssl.SSLCertVerificationError as error:
        connection.close()
        raise LinkError(
            f"the certificate of {told(address)} is not accepted ({error.verify_message}): "
            "check --ca, and that the certificate names this host"
        ) from None
    except (ssl.SSLError, OSError) as error:
        connection.close()
        raise LinkError(
            f"{told(address)} does not speak TLS as we do ({reason(error)}): "
            "start the server with --cert and --key, and use TLS 1.3"
        ) from None


def reason(error: OSError) -> str:
    """Why TLS failed, in a few words."""
    if isinstance(error, TimeoutError):
        return "time-out"
    named = error.reason if isinstance(error, ssl.SSLError) else None
    return (named or error.strerror or "connection closed").lower().replace("_", " ")


def _wrapped(
    connection: socket.socket, context: ssl.SSLContext | None, name: str | None, timeout_s: float
) -> socket.socket:
    connection.settimeout(min(CONNECT_TIMEOUT_S, timeout_s))
    if context is None:
        return connection
    with contextlib.ExitStack() as undo:
        undo.callback(connection.close)
        wrapped = context.wrap_socket(connection, server_side=name is None, server_hostname=name)
        undo.pop_all()
    return wrapped
